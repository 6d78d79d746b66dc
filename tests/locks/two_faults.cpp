// SPDX-License-Identifier: BSD-3-Clause
// Both faults that watch_locks.cpp looks for, under the name of altorch's library.
#include <dlfcn.h>
#include <time.h>

#include <mutex>

std::mutex mutex;

// To be called without the GIL.
extern "C" void hold_mutex_and_take_gil() {
  const auto ensure = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  const auto release = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
  const std::lock_guard lock(mutex);
  release(ensure());
}

// To be called with it.
extern "C" void wait() {
  const timespec moment{0, 1000};
  nanosleep(&moment, nullptr);
}
