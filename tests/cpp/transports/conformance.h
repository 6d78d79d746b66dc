// SPDX-License-Identifier: BSD-3-Clause
// What the conformance suites of transports share. Every rank of a group calls them at once, with
// links of its own; what is wrong is thrown.
#pragma once

#include <chrono>
#include <span>
#include <stdexcept>
#include <string>

#include "base/adaptive_wait.h"
#include "transports/channel.h"

namespace altorch::conformance {

inline void expect(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

inline std::string describe(std::span<const Request> requests) {
  std::string text;
  for (const Request& request : requests) {
    if (request.handle == 0 && request.extra == nullptr) continue;
    text += (request.is_receive ? " receive of " : " send of ") + std::to_string(request.bytes) +
            " bytes, peer " + std::to_string(request.peer) + ";";
  }
  return text;
}

// Waits; returns the error that came, if any.
inline std::optional<Error> finish(Channel& channel, std::span<Request> requests) {
  std::optional<Error> error;
  AdaptiveWait wait;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (true) {
    State state = channel.test(requests, error);
    if (state == State::kDone) return std::nullopt;
    if (state == State::kFailed) return error;
    expect(std::chrono::steady_clock::now() < deadline,
           "an operation did not finish in 20 s: " + describe(requests));
    wait.pause();
  }
}

inline void expect_done(Channel& channel, std::span<Request> requests, const char* what) {
  if (auto error = finish(channel, requests))
    throw std::runtime_error(std::string(what) + ": " + error->what());
}

}  // namespace altorch::conformance
