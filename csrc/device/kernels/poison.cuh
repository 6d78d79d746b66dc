// SPDX-License-Identifier: BSD-3-Clause
// Overwrites the result of an aborted call with the poison pattern, in the order of the stream, before later work can
// read it. It runs after every call whose own kernels do not poison their results. If no call was aborted, it only
// reads one word. Include after ll.cuh.

namespace altorch::kernels {

// As PoisonJob in device/device.h.
struct Poison {
  void* data;
  long long bytes;
  unsigned long long pattern;
  const unsigned* aborted;  // not 0: the call was aborted
};

AL_DEVICE void overwrite(const Poison& job, long long block, long long blocks) {
  const long long first = block * AL_THREADS + AL_THREAD, step = blocks * AL_THREADS;
  if (reinterpret_cast<unsigned long long>(job.data) % 8 == 0) {
    for (long long at = first; at < job.bytes / 8; at += step)
      static_cast<unsigned long long*>(job.data)[at] = job.pattern;
    for (long long at = job.bytes / 8 * 8 + first; at < job.bytes; at += step)
      static_cast<unsigned char*>(job.data)[at] = pattern_byte(job.pattern, at);
    return;
  }
  for (long long at = first; at < job.bytes; at += step)
    static_cast<unsigned char*>(job.data)[at] = pattern_byte(job.pattern, at);
}

#ifdef __CUDACC__
// Only one thread of a block reads the word, because it may lie on the host.
AL_DEVICE void run_poison_aborted(const Poison& job) {
  AL_LAUNCH_DEPENDENTS();
  __shared__ bool aborted;
  if (threadIdx.x == 0) aborted = is_set(job.aborted);
  __syncthreads();
  if (aborted) overwrite(job, blockIdx.x, gridDim.x);
}
#endif

}  // namespace altorch::kernels
