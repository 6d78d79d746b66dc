// SPDX-License-Identifier: BSD-3-Clause
#include "platform/fast_exit.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace altorch {
namespace {

std::atomic<bool> is_forced{false};

// A thread that waits for input holds that file's lock, so that not all files can be flushed.
void flush(FILE* file) {
  if (ftrylockfile(file) != 0) return;
  fflush_unlocked(file);
  funlockfile(file);
}

void end(int status, void*) {
  if (!is_forced.load() && DetachedThread::number() == 0) return;
  flush(stdout);
  flush(stderr);
  _exit(status);
}

}  // namespace

// Handlers are run in the opposite order of their registration.
void end_without_destructors(bool forced) {
  static std::atomic<bool> registered{false};
  if (forced) is_forced.store(true);
  if (!registered.exchange(true)) on_exit(end, nullptr);
}

}  // namespace altorch
