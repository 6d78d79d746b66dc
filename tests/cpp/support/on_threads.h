// SPDX-License-Identifier: BSD-3-Clause
// Ranks that are threads.
#pragma once

#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace altorch {

// Runs `body(rank)` on a thread per rank and returns what each threw: "" for nothing.
template <typename Body>
std::vector<std::string> on_threads(int size, Body body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Where none threw anything.
inline std::vector<std::string> all_good(int size) {
  return std::vector<std::string>(static_cast<std::size_t>(size));
}

}  // namespace altorch
