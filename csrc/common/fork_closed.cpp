#include "common/fork_closed.h"

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
    // The lock is held over the fork, so that the child finds the set whole.
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

void close_in_forks(int descriptor) {
  const std::lock_guard lock(registry().mutex);
  registry().descriptors.insert(descriptor);
}

void close_unforked(int descriptor) {
  const std::lock_guard lock(registry().mutex);
  if (registry().descriptors.erase(descriptor) > 0) close(descriptor);
}

}  // namespace altorch
