// MPI_Init cannot be interrupted: when a peer dies in it, the others wait there for ever. While an
// InitDeadline lives, its thread ends the process with a message once the time is over, so that the launcher
// can clean up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace altorch {

class InitDeadline {
 public:
  explicit InitDeadline(std::chrono::milliseconds timeout);
  ~InitDeadline();
  InitDeadline(const InitDeadline&) = delete;
  InitDeadline& operator=(const InitDeadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace altorch
