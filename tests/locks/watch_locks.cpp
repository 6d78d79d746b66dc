// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into a rank: reports where altorch takes the GIL while it holds one of its own mutexes,
// and where it waits while it holds the GIL. Both can deadlock.
//
// The interpreter uses mutexes for the GIL alone. So the first fault is a pthread_mutex_lock() of
// the interpreter on a thread that holds a mutex which altorch's library locked. The second is a
// wait that altorch's library calls for (a condition variable, a sleep, a yield, poll, a futex)
// while PyGILState_Check() is true; waits inside of other libraries are not seen. Reports, with the
// frames, go to the file WATCH_LOCKS_REPORT, or to the standard error. Thread rules: any thread.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

namespace {

constexpr int kMostHeld = 64, kMostFrames = 40;

struct Held {
  const void* locks[kMostHeld];
  int count;
  bool is_reporting;
};
thread_local Held held;

// Address ranges of altorch's library and of the interpreter.
struct Object {
  const char* marks[2];
  uintptr_t begin = 0, end = 0;
  bool has(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= begin && at < end;
  }
};
Object altorch{{"/altorch/_C.", nullptr}}, python{{"/bin/python", "libpython3"}};

int note_object(dl_phdr_info* info, size_t, void*) {
  char path[4096];
  const char* name = info->dlpi_name;
  if (name[0] == 0) {  // the program
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    name = path;
  }
  for (Object* object : {&altorch, &python}) {
    bool is_it = false;
    for (const char* mark : object->marks) is_it |= mark != nullptr && strstr(name, mark) != nullptr;
    if (!is_it) continue;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
      object->begin = info->dlpi_addr + segment.p_vaddr;
      object->end = object->begin + segment.p_memsz;
    }
  }
  return 0;
}

// The library comes by dlopen(), so it is looked for until it is there.
bool is_of_altorch(const void* caller) {
  static uint64_t objects = 0;
  if (altorch.begin == 0) {
    uint64_t now = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* into) {
          *static_cast<uint64_t*>(into) = info->dlpi_adds;
          return 1;
        },
        &now);
    if (now == objects) return false;
    objects = now;
    dl_iterate_phdr(note_object, nullptr);
  }
  return altorch.has(caller);
}

// Before version 2.36 glibc's dlsym() finds the condition variables of 2.2.5, which differ, on
// x86-64.
template <typename Function>
Function* next(const char* name) {
  void* found = strncmp(name, "pthread_cond_", 13) == 0 ? dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2") : nullptr;
  return reinterpret_cast<Function*>(found ? found : dlsym(RTLD_NEXT, name));
}

void report(const char* what) {
  if (held.is_reporting) return;
  held.is_reporting = true;
  char text[160];
  const int length = snprintf(text, sizeof text, "LOCKS: %s (thread %ld)\n", what, syscall(SYS_gettid));
  const char* const file = getenv("WATCH_LOCKS_REPORT");
  const int to = file == nullptr ? 2 : open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (write(to, text, static_cast<size_t>(length)) < 0) abort();
  void* frames[kMostFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kMostFrames), to);
  if (to != 2) close(to);
  held.is_reporting = false;
}

void takes(const void* lock, const void* caller) {
  if (is_of_altorch(caller) && held.count < kMostHeld) held.locks[held.count++] = lock;
}

void gives(const void* lock) {
  for (int i = held.count; i-- > 0;) {
    if (held.locks[i] != lock) continue;
    held.locks[i] = held.locks[--held.count];
    return;
  }
}

bool holds(const void* lock) {
  for (int i = 0; i < held.count; ++i) {
    if (held.locks[i] == lock) return true;
  }
  return false;
}

void waits() {
  static int (*const holds_python)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  static int (*const is_initialized)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  if (holds_python == nullptr || held.is_reporting) return;
  if (is_initialized() != 0 && holds_python() != 0) report("waits, and holds the GIL");
}

void waits_at(const void* caller) {
  if (is_of_altorch(caller)) waits();
}

}  // namespace

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  if (held.count > 0 && !held.is_reporting && python.has(CALLER))
    report("takes the GIL, and holds a mutex of altorch");
  const int result = real(mutex);
  if (result == 0) takes(mutex, CALLER);
  return result;
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_trylock");
  const int result = real(mutex);
  if (result == 0) takes(mutex, CALLER);
  return result;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_unlock");
  gives(mutex);
  return real(mutex);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static auto* const real = next<int(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
  if (holds(mutex)) waits();
  return real(condition, mutex);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* end) {
  static auto* const real =
      next<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>("pthread_cond_clockwait");
  if (holds(mutex)) waits();
  return real(condition, mutex, clock, end);
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  static auto* const real = next<int(clockid_t, int, const timespec*, timespec*)>("clock_nanosleep");
  waits_at(CALLER);
  return real(clock, flags, time, left);
}

int nanosleep(const timespec* time, timespec* left) {
  static auto* const real = next<int(const timespec*, timespec*)>("nanosleep");
  waits_at(CALLER);
  return real(time, left);
}

int sched_yield() {
  static auto* const real = next<int()>("sched_yield");
  waits_at(CALLER);
  return real();
}

int poll(pollfd* descriptors, nfds_t number, int milliseconds) {
  static auto* const real = next<int(pollfd*, nfds_t, int)>("poll");
  if (milliseconds != 0) waits_at(CALLER);
  return real(descriptors, number, milliseconds);
}

long syscall(long number, ...) {
  static auto* const real = next<long(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long given[6];
  for (long& each : given) each = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && (given[1] & FUTEX_CMD_MASK & ~FUTEX_WAKE) == FUTEX_WAIT) waits_at(CALLER);
  return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

}  // extern "C"
