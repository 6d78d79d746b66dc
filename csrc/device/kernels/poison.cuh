// SPDX-License-Identifier: BSD-3-Clause
// Overwrites the result of a call that was given up, in the stream's order, before anybody can read it. Behind
// every call whose own kernels do not see to that; it looks at one word, and that is all while all is well.
// After small.cuh.

namespace altorch::kernels {

// As PoisonJob in device/device.h.
struct Poison {
  void* data;
  long long bytes;
  unsigned long long pattern;
  const unsigned* given_up;  // not 0: the call was
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
// One thread of a block looks: the word may lie on the host.
AL_DEVICE void run_poison_given_up(const Poison& job) {
  AL_LET_THE_NEXT_COME();
  __shared__ bool given_up;
  if (threadIdx.x == 0) given_up = is_set(job.given_up);
  __syncthreads();
  if (given_up) overwrite(job, blockIdx.x, gridDim.x);
}
#endif

}  // namespace altorch::kernels
