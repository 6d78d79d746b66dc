// SPDX-License-Identifier: BSD-3-Clause
#include "platform/native_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace altorch {
namespace {

std::atomic<int> starts_left{-1};  // negative: as many as the system allows

bool start_is_to_fail() {
  int left = starts_left.load(std::memory_order_relaxed);
  while (left > 0 && !starts_left.compare_exchange_weak(left, left - 1)) {
  }
  return left == 0;
}

void* thread_main(void* argument) {
  std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

std::string limit_of_user() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur);
}

}  // namespace

void fail_thread_starts_after(int starts) { starts_left.store(starts); }

std::string no_more_threads(const char* name, int error) {
  return std::string("thread '") + name + "' cannot be started (" + std::strerror(error) +
         "): this user's limit on processes (ulimit -u, now " + limit_of_user() +
         ") or the cgroup's (pids.max) is reached; raise it, or run fewer processes and threads";
}

void start_native_thread(const char* name, std::function<void()> body) {
  auto argument = std::make_unique<std::function<void()>>(std::move(body));
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error =
      start_is_to_fail() ? EAGAIN : pthread_create(&thread, nullptr, thread_main, argument.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) throw Error(ErrorKind::kTransport, no_more_threads(name, error));
  argument.release();
  pthread_setname_np(thread, name);
  pthread_detach(thread);
}

NativeThread::NativeThread(const char* name, std::function<void()> body) {
  start_native_thread(name, [end = end_, body = std::move(body)]() mutable {
    body();
    body = nullptr;
    const std::lock_guard lock(end->mutex);
    end->reached = true;
    end->changed.notify_all();
  });
}

bool NativeThread::ends_within(std::chrono::milliseconds timeout) {
  std::unique_lock lock(end_->mutex);
  return end_->changed.wait_for(lock, timeout, [&] { return end_->reached; });
}

void NativeThread::join() {
  std::unique_lock lock(end_->mutex);
  end_->changed.wait(lock, [&] { return end_->reached; });
}

}  // namespace altorch
