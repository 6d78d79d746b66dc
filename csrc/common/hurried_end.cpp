#include "common/hurried_end.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace altorch {
namespace {

void end(int status, void*) {
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

// Handlers are run in the opposite order of their registration.
void end_without_destructors() {
  static std::atomic<bool> done{false};
  if (!done.exchange(true)) on_exit(end, nullptr);
}

}  // namespace altorch
