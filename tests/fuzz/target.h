// SPDX-License-Identifier: BSD-3-Clause
// A fuzz target: a function of bytes that another process has written. It must not crash, hang,
// take memory without bound, or throw anything but Error, which is how hostile bytes are refused.
//
// Each tests/fuzz/<name>_fuzz.cpp is one. With ALTORCH_LIBFUZZER it becomes a libFuzzer program
// (`make fuzz`); without, a test that replays tests/fuzz/corpus/<name> and some mutations of it,
// the same each time.
#pragma once

#include <stdexcept>
#include <string>

#include "base/error.h"
#include "fuzz/input.h"

namespace altorch::fuzz {

using Target = void (*)(Input& input);

// What holds whatever the bytes are.
inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("fuzzing: it does not hold that " + what);
}

inline void run_once(Target target, const std::uint8_t* data, std::size_t bytes) {
  Input input(data, bytes);
  try {
    target(input);
  } catch (const Error&) {
  }
}

// A failed test for each input at which the target throws anything else.
void replay(const std::string& name, Target target, int mutations);

}  // namespace altorch::fuzz

#ifdef ALTORCH_LIBFUZZER
#define FUZZ_TARGET(name, mutations)                                                   \
  static void fuzz_##name(altorch::fuzz::Input& input);                                \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) { \
    altorch::fuzz::run_once(fuzz_##name, data, bytes);                                 \
    return 0;                                                                          \
  }                                                                                    \
  static void fuzz_##name(altorch::fuzz::Input& input)
#else
#include <gtest/gtest.h>
// `mutations`: how many are a moment's work.
#define FUZZ_TARGET(name, mutations)                                         \
  static void fuzz_##name(altorch::fuzz::Input& input);                      \
  TEST(Fuzz, name) { altorch::fuzz::replay(#name, fuzz_##name, mutations); } \
  static void fuzz_##name(altorch::fuzz::Input& input)
#endif
