// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/init_deadline.h"

#include <unistd.h>

#include <string>

namespace altorch {

InitDeadline::InitDeadline() {
  thread_.emplace("al-mpi-init", [this] {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_ || timeout_; });
    if (over_) return;
    const auto timeout = *timeout_;
    if (changed_.wait_for(lock, timeout, [this] { return over_; })) return;
    const std::string message =
        "altorch: MPI_Init did not return within " + std::to_string(timeout.count() / 1000) +
        " s; most likely another rank died in it. This process ends, for MPI_Init cannot be interrupted.\n";
    if (write(STDERR_FILENO, message.data(), message.size()) < 0) {
      // The message is lost, and there is no other place for it.
    }
    _exit(1);
  });
}

void InitDeadline::begin(std::chrono::milliseconds timeout) {
  {
    const std::lock_guard guard(mutex_);
    timeout_ = timeout;
  }
  changed_.notify_one();
}

InitDeadline::~InitDeadline() {
  {
    std::lock_guard guard(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_->join();
}

}  // namespace altorch
