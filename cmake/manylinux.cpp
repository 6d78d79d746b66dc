// SPDX-License-Identifier: BSD-3-Clause
// For wheels (ALTORCH_MANYLINUX): functions of which a newer system than that of manylinux_2_27
// (glibc 2.27, GCC 7) has a new version, or which it has added. altorch's libraries find these
// definitions before those of the system. Each calls the older version, which every newer system
// has, too.
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#define OF_2_12 "GLIBC_2.12"
constexpr int kStatVersion = 1;
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
#define OF_2_12 "GLIBC_2.17"
constexpr int kStatVersion = 0;
#endif

#define HIDDEN __attribute__((visibility("hidden")))
// `name` with the prefix old_ is the version `version` of it.
#define OLD(name, version) __asm__(".symver old_" #name ", " #name "@" version)

extern "C" {

int old_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int old_pthread_detach(pthread_t);
int old_pthread_once(pthread_once_t*, void (*)());
int old_pthread_mutex_trylock(pthread_mutex_t*);
int old_pthread_mutex_timedlock(pthread_mutex_t*, const timespec*);
int old_pthread_rwlock_rdlock(pthread_rwlock_t*);
int old_pthread_rwlock_wrlock(pthread_rwlock_t*);
int old_pthread_rwlock_unlock(pthread_rwlock_t*);
int old_pthread_sigmask(int, const sigset_t*, sigset_t*);
int old_pthread_setname_np(pthread_t, const char*);
void* old_dlopen(const char*, int);
void* old_dlsym(void*, const char*);
int old_dlclose(void*);
char* old_dlerror();
int old_dladdr(const void*, Dl_info*);
int __xstat(int, const char*, struct stat*);
int __fxstat(int, int, struct stat*);
OLD(pthread_create, OLDEST);
OLD(pthread_detach, OLDEST);
OLD(pthread_once, OLDEST);
OLD(pthread_mutex_trylock, OLDEST);
OLD(pthread_mutex_timedlock, OLDEST);
OLD(pthread_rwlock_rdlock, OLDEST);
OLD(pthread_rwlock_wrlock, OLDEST);
OLD(pthread_rwlock_unlock, OLDEST);
OLD(pthread_sigmask, OLDEST);
OLD(pthread_setname_np, OF_2_12);
OLD(dlopen, OLDEST);
OLD(dlsym, OLDEST);
OLD(dlclose, OLDEST);
OLD(dlerror, OLDEST);
OLD(dladdr, OLDEST);

HIDDEN int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*run)(void*), void* with) {
  return old_pthread_create(thread, how, run, with);
}
HIDDEN int pthread_detach(pthread_t thread) { return old_pthread_detach(thread); }
HIDDEN int pthread_once(pthread_once_t* control, void (*run)()) { return old_pthread_once(control, run); }
HIDDEN int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept { return old_pthread_mutex_trylock(mutex); }
HIDDEN int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept { return old_pthread_rwlock_rdlock(lock); }
HIDDEN int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept { return old_pthread_rwlock_wrlock(lock); }
HIDDEN int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept { return old_pthread_rwlock_unlock(lock); }
HIDDEN int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  return old_pthread_sigmask(how, set, before);
}
HIDDEN int pthread_setname_np(pthread_t thread, const char* name) noexcept {
  return old_pthread_setname_np(thread, name);
}
HIDDEN void* dlopen(const char* path, int how) noexcept { return old_dlopen(path, how); }
HIDDEN void* dlsym(void* library, const char* name) noexcept { return old_dlsym(library, name); }
HIDDEN int dlclose(void* library) noexcept { return old_dlclose(library); }
HIDDEN char* dlerror() noexcept { return old_dlerror(); }
HIDDEN int dladdr(const void* address, Dl_info* found) noexcept { return old_dladdr(address, found); }
HIDDEN int stat(const char* path, struct stat* found) noexcept { return __xstat(kStatVersion, path, found); }
HIDDEN int fstat(int file, struct stat* found) noexcept { return __fxstat(kStatVersion, file, found); }

// libstdc++ asks it whether a reference count needs an atomic operation.
HIDDEN char __libc_single_threaded = 0;

// glibc 2.30 added waits on the monotonic clock. Older versions wait on CLOCK_REALTIME; libstdc++
// then looks at its own clock again.
static timespec to_realtime(clockid_t clock, const timespec* until) {
  timespec now, wall;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  constexpr long kSecond = 1'000'000'000;
  long nanoseconds = wall.tv_nsec + until->tv_nsec - now.tv_nsec;
  time_t seconds = wall.tv_sec + until->tv_sec - now.tv_sec;
  while (nanoseconds < 0) nanoseconds += kSecond, --seconds;
  while (nanoseconds >= kSecond) nanoseconds -= kSecond, ++seconds;
  return {seconds, nanoseconds};
}

HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const timespec* until) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto wait = reinterpret_cast<Wait>(old_dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (wait) return wait(condition, mutex, clock, until);
  const timespec wall = to_realtime(clock, until);
  return pthread_cond_timedwait(condition, mutex, &wall);
}

HIDDEN int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* until) noexcept {
  using Lock = int (*)(pthread_mutex_t*, clockid_t, const timespec*);
  static const auto lock = reinterpret_cast<Lock>(old_dlsym(RTLD_DEFAULT, "pthread_mutex_clocklock"));
  if (lock) return lock(mutex, clock, until);
  const timespec wall = to_realtime(clock, until);
  return old_pthread_mutex_timedlock(mutex, &wall);
}

// Members of std:: by their names in libstdc++; `self` is the object.
void old_condition_wait(void* self, void* lock);
void __cxa_throw_bad_array_new_length();
void* old_copy(void* self, const void* from) __asm__("_ZNSt13runtime_errorC2ERKS_");
void* old_assign(void* self, const void* from) __asm__("_ZNSt13runtime_erroraSERKS_");
void old_exception_copy(void* self, const void* from);
void old_exception_end(void* self);
__asm__(".symver old_exception_copy, _ZNSt15__exception_ptr13exception_ptrC1ERKS0_@CXXABI_1.3.3");
__asm__(".symver old_exception_end, _ZNSt15__exception_ptr13exception_ptrD1Ev@CXXABI_1.3.3");
__asm__(".symver old_condition_wait, _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

HIDDEN void condition_wait(void* self, void* lock) __asm__("_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");
void condition_wait(void* self, void* lock) { old_condition_wait(self, lock); }

HIDDEN void bad_array_new_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
void bad_array_new_length() { __cxa_throw_bad_array_new_length(); }

// A runtime_error is moved as it is copied: the text is shared.
HIDDEN void* move(void* self, void* from) __asm__("_ZNSt13runtime_errorC2EOS_");
void* move(void* self, void* from) { return old_copy(self, from); }
HIDDEN void* move_assign(void* self, void* from) __asm__("_ZNSt13runtime_erroraSEOS_");
void* move_assign(void* self, void* from) { return old_assign(self, from); }

// C++20's overload of str() copies as the older one does.
std::string old_text(const void* self) __asm__("_ZNKSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
HIDDEN std::string text(const void* self) __asm__("_ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string text(const void* self) { return old_text(self); }

// A copy that is never destroyed adds a reference; a destructor without a constructor removes one.
HIDDEN void exception_addref(void* self) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void exception_addref(void* self) {
  alignas(void*) std::byte copy[sizeof(void*)];
  old_exception_copy(copy, self);
}
HIDDEN void exception_release(void* self) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void exception_release(void* self) {
  old_exception_end(self);
  *static_cast<void**>(self) = nullptr;
}

// The timed wait of std::future: false on timeout. `seconds` and `nanoseconds` are of
// CLOCK_MONOTONIC.
HIDDEN bool futex_wait_steady(void* self, unsigned* address, unsigned value, bool has_timeout, long seconds,
                              long nanoseconds)
    __asm__("_ZNSt28__atomic_futex_unsigned_base26_M_futex_wait_until_steadyEPjjbNSt6chrono8durationIlSt5ratioILl1ELl1EEE"
            "ENS2_IlS3_ILl1ELl1000000000EEEE");
bool futex_wait_steady(void*, unsigned* address, unsigned value, bool has_timeout, long seconds,
                       long nanoseconds) {
  const timespec until{seconds, nanoseconds};
  if (has_timeout && seconds < 0) return false;
  const long code = syscall(SYS_futex, address, FUTEX_WAIT_BITSET, value, has_timeout ? &until : nullptr,
                            nullptr, FUTEX_BITSET_MATCH_ANY);
  return code == 0 || errno != ETIMEDOUT;
}

}  // extern "C"
