// SPDX-License-Identifier: BSD-3-Clause
// What ThreadSanitizer reports wrongly.
#if defined(__SANITIZE_THREAD__)
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  // That of GCC 12 does not see pthread_mutex_clocklock(), by which std::timed_mutex waits for a
  // while, and takes the unlock for one too many.
  return "mutex:altorch::nccl::NcclComm::abort\n";
}
#endif
