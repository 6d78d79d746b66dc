// SPDX-License-Identifier: BSD-3-Clause
// ALTORCH_ON_ERROR, and `on_error` of altorch.Options: what happens to the results of GPU
// operations that failed in flight.
#pragma once

#include <string>

#include "base/env.h"
#include "base/error.h"

namespace altorch {

enum class OnError {
  kPoison,    // they are overwritten before the caller can read them
  kTeardown,  // the process ends
  kContinue,  // they keep the data that is there
};

// Throws Error(kInvalidArgument) for any other word.
inline OnError on_error_named(const std::string& word) {
  if (word == "poison") return OnError::kPoison;
  if (word == "teardown") return OnError::kTeardown;
  if (word == "continue") return OnError::kContinue;
  throw Error(ErrorKind::kInvalidArgument,
              "on_error (ALTORCH_ON_ERROR) is '" + word + "', and may be poison, teardown or continue");
}

inline OnError on_error_setting() { return on_error_named(setting("ALTORCH_ON_ERROR")); }

}  // namespace altorch
