// SPDX-License-Identifier: BSD-3-Clause
// One-shot reduction: each rank pulls its slice (a block, or everything) from all ranks and reduces
// it. Include after parts.cuh.

namespace altorch::kernels {

// Each rank pushes to each peer the slice of its input that the peer reduces. After each round it
// also raises a flag for itself. The block that pulls waits for this flag, because its result may
// overwrite the input.
AL_DEVICE Chunks chunks_for(const OneShotReduce& job, int rank, i64 block) {
  return {job.counts[rank], job.chunk, block, job.blocks};
}
AL_DEVICE i64 rounds_of(const OneShotReduce& job, i64 block) {
  return rounds_of(Chunks{job.longest, job.chunk, block, job.blocks});
}
// The counters of a thread block: rounds pushed, rounds pulled, calls pushed, calls pulled.
enum OneShotCount { kOneShotPushed, kOneShotPulled, kOneShotCallsPushed, kOneShotCallsPulled };
AL_DEVICE unsigned* one_shot_count(const BulkSlots& slots, OneShotCount what, i64 block) {
  return slots.numbers + what * slots.blocks + block;
}
template <class Number>
AL_DEVICE void push_one_shot(const OneShotReduce& job, i64 block) {
  const BulkSlots& slots = job.slots;
  unsigned* const last = one_shot_count(slots, kOneShotPushed, block);
  unsigned* const calls = one_shot_count(slots, kOneShotCallsPushed, block);
  const unsigned number = push_rounds(
      slots, block, *last, rounds_of(job, block), 0, slots.number, [&](i64 round, i64 slot) {
        for (int turn = 1; turn < slots.number; ++turn) {
          const int rank = (slots.rank + turn) % slots.number;  // so that ranks do not all push to the same rank first
          const Chunks chunks = chunks_for(job, rank, block);
          push_part<Number>(job, slots.theirs[rank] + slot, job.begins[rank] + begin_of(chunks, round),
                            length_of(chunks, round));
        }
      });
  keep_number(last, number);
  if (AL_THREAD == 0) raise_flag(calls, *calls + 1);
}
template <class Number, class Operator, bool kMean>
AL_DEVICE void pull_one_shot(const OneShotReduce& job, i64 block) {
  using Stored = typename Number::Stored;
  const BulkSlots& slots = job.slots;
  const auto* own = static_cast<const Stored*>(job.input) + job.begins[slots.rank];
  const Chunks chunks = chunks_for(job, slots.rank, block);
  unsigned* const last = one_shot_count(slots, kOneShotPulled, block);
  unsigned* const calls = one_shot_count(slots, kOneShotCallsPulled, block);
  const i64 rounds = rounds_of(job, block);
  i64 taken;
  AL_SHARED(ShareJob, work);
  const unsigned number = take_rounds(
      slots, block, *last, rounds, 0, slots.number, taken, [&](i64 round, i64 slot) {
        const i64 at = begin_of(chunks, round);
        if (AL_THREAD == 0) {
          begin_share(work, job);
          work.results[work.results_number++] = static_cast<Stored*>(job.output) + at;
          for (int rank = 0; rank < slots.number; ++rank)
            work.parts[rank] =
                rank == slots.rank ? static_cast<const void*>(own + at) : slots.mine[rank] + slot;
        }
        AL_SYNCHRONIZE();
        reduce_share<Number, Operator, kMean>(work, length_of(chunks, round));
      });
  // After an abort, the block that pushes may still read the input.
  if (taken < rounds && AL_THREAD == 0) await_flag(one_shot_count(slots, kOneShotCallsPushed, block), *calls + 1, nullptr);
  AL_SYNCHRONIZE();
  for (; taken < rounds; ++taken) poison_part<Number>(job, begin_of(chunks, taken), length_of(chunks, taken));
  keep_number(last, number);
  if (AL_THREAD == 0) ++*calls;
}

#ifdef __CUDACC__
// Even blocks push and odd blocks pull. So a block that other ranks wait for starts no later than a
// block that waits.
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_one_shot_reduce(const OneShotReduce& job) {
  const int block = static_cast<int>(blockIdx.x / 2);
  blockIdx.x % 2 == 0 ? push_one_shot<Number>(job, block) : pull_one_shot<Number, Operator, kMean>(job, block);
}
#endif

}  // namespace altorch::kernels
