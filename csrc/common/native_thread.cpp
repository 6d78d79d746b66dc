#include "common/native_thread.h"

#include <pthread.h>
#include <signal.h>

#include <cstring>
#include <memory>

#include "common/error.h"

namespace altorch {
namespace {

void* thread_main(void* argument) {
  std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

}  // namespace

void start_native_thread(const char* name, std::function<void()> body) {
  auto argument = std::make_unique<std::function<void()>>(std::move(body));
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, thread_main, argument.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    throw Error(ErrorKind::kTransport, std::string("No more threads: ") + std::strerror(error) + ".");
  }
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

bool NativeThread::ends_within(std::chrono::milliseconds patience) {
  std::unique_lock lock(end_->mutex);
  return end_->changed.wait_for(lock, patience, [&] { return end_->reached; });
}

}  // namespace altorch
