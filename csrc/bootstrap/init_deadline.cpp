#include "bootstrap/init_deadline.h"

#include <signal.h>
#include <unistd.h>

#include <string>

namespace altorch {

InitDeadline::InitDeadline(std::chrono::milliseconds timeout) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, timeout] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, timeout, [this] { return over_; })) return;
    const std::string message =
        "altorch: MPI_Init did not return within " + std::to_string(timeout.count() / 1000) +
        " s; most likely another rank died in it. This process ends, for MPI_Init cannot be interrupted.\n";
    if (write(STDERR_FILENO, message.data(), message.size()) < 0) {
      // Nobody is left to tell.
    }
    _exit(1);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

InitDeadline::~InitDeadline() {
  {
    std::lock_guard guard(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace altorch
