// SPDX-License-Identifier: BSD-3-Clause
// MPI_Init cannot be interrupted: when a peer dies in it, the others wait there for ever. While an
// InitDeadline lives, its thread ends the process with a message once the time is over, so that the
// launcher can clean up. The thread starts before the ranks agree to enter MPI_Init.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "platform/native_thread.h"

namespace altorch {

class InitDeadline {
 public:
  // Throws Error(kTransport) where no thread can be started.
  InitDeadline();
  // From now on `timeout` runs. Once.
  void begin(std::chrono::milliseconds timeout);
  ~InitDeadline();
  InitDeadline(const InitDeadline&) = delete;
  InitDeadline& operator=(const InitDeadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::optional<std::chrono::milliseconds> timeout_;  // once it runs
  std::optional<NativeThread> thread_;                // uses what stands above
};

}  // namespace altorch
