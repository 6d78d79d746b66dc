// SPDX-License-Identifier: BSD-3-Clause
// Overwrites the result of an aborted call with the poison pattern, in the order of the stream,
// before later work can read it. It runs after every call whose own kernels do not poison their
// results. If no call was aborted, it only reads one word. A job with `released` holds an aborted
// stream up. Include after ll.cuh.

namespace altorch::kernels {

AL_DEVICE void overwrite(const PoisonJob& job, i64 block, i64 blocks) {
  const i64 first = block * AL_THREADS + AL_THREAD, step = blocks * AL_THREADS;
  if (reinterpret_cast<u64>(job.data) % 8 == 0) {
    for (i64 at = first; at < job.bytes / 8; at += step)
      static_cast<u64*>(job.data)[at] = job.pattern;
    for (i64 at = job.bytes / 8 * 8 + first; at < job.bytes; at += step)
      static_cast<unsigned char*>(job.data)[at] = pattern_byte(job.pattern, at);
    return;
  }
  for (i64 at = first; at < job.bytes; at += step)
    static_cast<unsigned char*>(job.data)[at] = pattern_byte(job.pattern, at);
}

#ifdef __CUDACC__
// Only one thread of a block reads the word, because it may lie on the host.
AL_DEVICE void run_poison_aborted(const PoisonJob& job) {
  __shared__ bool aborted;
  if (threadIdx.x == 0) {
    aborted = is_set(job.aborted);
    while (aborted && job.released && !is_set(job.released)) AL_PAUSE();
  }
  AL_LAUNCH_DEPENDENTS();
  __syncthreads();
  if (aborted) overwrite(job, blockIdx.x, gridDim.x);
}
#endif

}  // namespace altorch::kernels
