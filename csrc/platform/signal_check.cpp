// SPDX-License-Identifier: BSD-3-Clause
#include "platform/signal_check.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace altorch {
namespace {

constexpr std::chrono::milliseconds kBetweenQuestions{250};

std::atomic<SignalCheck::Raised> raised_by_handler{nullptr};

std::atomic<pid_t> handler_thread{0};  // the thread on which one of the program's handlers runs; 0: none

pid_t own_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

bool is_main_thread() {
  static thread_local const bool is_main = own_thread() == getpid();
  return is_main;
}

}  // namespace

void SignalCheck::set(Raised raised) { raised_by_handler.store(raised); }

bool SignalCheck::is_in_handler() {
  const pid_t thread = handler_thread.load(std::memory_order_relaxed);
  return thread != 0 && thread == own_thread();
}

void SignalCheck::refuse_in_handler() {
  if (!is_in_handler()) return;
  throw Error(
      ErrorKind::kUnsupported,
      "altorch: a signal handler that runs while a call waits cannot communicate; let it set a flag, and "
      "communicate after the call");
}

std::optional<Error> SignalCheck::look(Clock::time_point now) {
  if (next_ == Clock::time_point{}) next_ = now + kBetweenQuestions;
  if (now < next_ || !is_main_thread() || is_in_handler()) return std::nullopt;
  next_ = now + kBetweenQuestions;
  const Raised raised = raised_by_handler.load();
  if (!raised) return std::nullopt;
  handler_thread = own_thread();
  const bool has_raised = raised();
  handler_thread = 0;
  if (!has_raised) return std::nullopt;
  return Error(ErrorKind::kInterrupted, "a signal interrupted it while it waited");
}

}  // namespace altorch
