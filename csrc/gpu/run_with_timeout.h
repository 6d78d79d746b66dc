// SPDX-License-Identifier: BSD-3-Clause
// Runs a library call that waits for other ranks and has no timeout of its own.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace altorch {

// Runs `body` on a thread of its own and returns its result, or nothing after `timeout`. After a
// timeout, or if `check_peers` throws, the thread runs on, so `body` must own everything that it
// refers to. `thread`: its name. Throws Error(kTransport) if no thread can be started. Thread
// rules: any thread.
std::optional<int> run_with_timeout(std::chrono::milliseconds timeout, const char* thread,
                                    std::function<int()> body, const std::function<void()>& check_peers = {});

}  // namespace altorch
