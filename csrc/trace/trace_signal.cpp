// SPDX-License-Identifier: BSD-3-Clause
#include "trace/trace_signal.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace altorch {
namespace {

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
std::atomic<int> wake_fd_of_process{-1};
std::atomic<int> process{0};
std::atomic<bool> was_raised{false};

// In a child that shares our memory for a moment (vfork) too.
void ring(int) {
  const int before = errno;
  if (getpid() == process.load()) {
    was_raised.store(true);
    const std::uint64_t one = 1;
    if (::write(wake_fd_of_process.load(), &one, sizeof one) < 0) {
      // It rings already.
    }
  }
  errno = before;
}

bool is_ours() {
  struct sigaction now = {};
  return sigaction(SIGUSR1, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == ring;
}

void set_default() {
  struct sigaction none = {};
  none.sa_handler = SIG_DFL;
  sigaction(SIGUSR1, &none, nullptr);
}

// A forked child has no thread that reports, so the signal gets its default action there, and ends
// the child.
void leave_in_child() {
  if (is_ours()) set_default();
}

}  // namespace

void TraceSignal::take(int wake_fd) {
  static const int watched = pthread_atfork(nullptr, nullptr, leave_in_child);
  static_cast<void>(watched);
  struct sigaction now = {};
  if (sigaction(SIGUSR1, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL)
    return;
  wake_fd_of_process.store(wake_fd);
  process.store(getpid());
  struct sigaction ours = {};
  ours.sa_handler = ring;
  ours.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(SIGUSR1, &ours, nullptr);
}

void TraceSignal::give_back() {
  if (is_ours()) set_default();
}

bool TraceSignal::has_come() { return was_raised.exchange(false); }

}  // namespace altorch
