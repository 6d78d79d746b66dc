// What the search for leaks reports wrongly.
#if defined(__SANITIZE_ADDRESS__)
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  // The progress thread lives until the process ends, and what it drives is a variable on its stack, which that search does
  // not always get to see.
  return "leak:altorch::ProgressThread::next_round\n";
}
#endif
