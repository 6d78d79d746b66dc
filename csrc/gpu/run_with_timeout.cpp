// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/run_with_timeout.h"

#include <future>
#include <memory>

#include "platform/fast_exit.h"
#include "platform/native_thread.h"

namespace altorch {
namespace {

// Most calls last microseconds; one that lasts so long may wait for a peer.
constexpr std::chrono::milliseconds kBetweenChecks{200};

}  // namespace

std::optional<int> run_with_timeout(std::chrono::milliseconds timeout, const char* thread,
                                    std::function<int()> body, const std::function<void()>& check_peers) {
  auto promise = std::make_shared<std::promise<int>>();
  auto result = promise->get_future();
  // Counted until it is done: a process that exits earlier must not destroy the library and CUDA
  // under it.
  auto counted = std::make_shared<DetachedThread>();
  start_native_thread(thread, [promise, body = std::move(body), counted = std::move(counted)] {
    promise->set_value(body());
  });
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (result.wait_for(kBetweenChecks) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
    if (check_peers) check_peers();
  }
  return result.get();
}

}  // namespace altorch
