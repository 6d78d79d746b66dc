// SPDX-License-Identifier: BSD-3-Clause
#include "platform/close_on_fork.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace altorch {
namespace {

struct Registry {
  std::mutex mutex;
  std::set<int> descriptors;
};

Registry& registry() {
  static auto* instance = [] {
    // fork() runs with the lock held, so the child finds a consistent set.
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] {
                     for (const int descriptor : registry().descriptors) close(descriptor);
                     registry().descriptors.clear();
                     registry().mutex.unlock();
                   });
    return new Registry();
  }();
  return *instance;
}

}  // namespace

void close_on_fork(int descriptor) {
  const std::lock_guard lock(registry().mutex);
  registry().descriptors.insert(descriptor);
}

void close_registered(int descriptor) {
  const std::lock_guard lock(registry().mutex);
  if (registry().descriptors.erase(descriptor) > 0) close(descriptor);
}

}  // namespace altorch
