// A reduction in which every rank reduces of everybody what it wants for itself: a block of its own, or all. After parts.cuh.

namespace altorch::kernels {

// As BulkFold in device/device.h.
struct BulkFold {
  BulkPlaces places;
  const void* input;
  void* output;
  long long begins[16], counts[16], chunk, longest;
  int blocks, scaled;
  double factor;
  unsigned long long poison;
};

// Every rank has something of its vector for each of those that want it, and reduces what is for itself. A rank tells itself,
// too, what it has pushed: it may be about to overwrite it.
AL_DEVICE Chunks chunks_for(const BulkFold& job, int rank, long long block) {
  return {job.counts[rank], job.chunk, block, job.blocks};
}
AL_DEVICE long long rounds_of(const BulkFold& job, long long block) {
  return rounds_of(Chunks{job.longest, job.chunk, block, job.blocks});
}
// Where a block counts: rounds that it has pushed, or taken; calls that it has pushed, or taken.
enum FoldCount { kFoldPushed, kFoldTaken, kFoldCallsPushed, kFoldCallsTaken };
AL_DEVICE unsigned* fold_count(const BulkPlaces& places, FoldCount what, long long block) {
  return places.numbers + what * places.blocks + block;
}
template <class Number>
AL_DEVICE void push_fold(const BulkFold& job, long long block) {
  const BulkPlaces& places = job.places;
  unsigned* const last = fold_count(places, kFoldPushed, block);
  unsigned* const calls = fold_count(places, kFoldCallsPushed, block);
  const unsigned number = push_rounds(
      places, block, *last, rounds_of(job, block), 0, places.number, [&](long long round, long long slot) {
        for (int turn = 1; turn < places.number; ++turn) {
          const int rank = (places.rank + turn) % places.number;  // not everybody to the same one first
          const Chunks chunks = chunks_for(job, rank, block);
          push_part<Number>(job, places.theirs[rank] + slot, job.begins[rank] + begin_of(chunks, round),
                            length_of(chunks, round));
        }
      });
  keep_number(last, number);
  if (AL_THREAD == 0) raise_flag(calls, *calls + 1);
}
template <class Number, class Operator, bool kMean>
AL_DEVICE void take_fold(const BulkFold& job, long long block) {
  using Stored = typename Number::Stored;
  const BulkPlaces& places = job.places;
  const auto* own = static_cast<const Stored*>(job.input) + job.begins[places.rank];
  const Chunks chunks = chunks_for(job, places.rank, block);
  unsigned* const last = fold_count(places, kFoldTaken, block);
  unsigned* const calls = fold_count(places, kFoldCallsTaken, block);
  const long long rounds = rounds_of(job, block);
  long long taken;
  AL_SHARED(ShareJob, work);
  const unsigned number = take_rounds(
      places, block, *last, rounds, 0, places.number, taken, [&](long long round, long long slot) {
        const long long at = begin_of(chunks, round);
        if (AL_THREAD == 0) {
          begin_share(work, job);
          work.results[work.results_number++] = static_cast<Stored*>(job.output) + at;
          for (int rank = 0; rank < places.number; ++rank)
            work.parts[rank] =
                rank == places.rank ? static_cast<const void*>(own + at) : places.mine[rank] + slot;
        }
        AL_SYNCHRONIZE();
        reduce_share<Number, Operator, kMean>(work, length_of(chunks, round));
      });
  // What is given up may still be read by the block that pushes.
  if (taken < rounds && AL_THREAD == 0) await_flag(fold_count(places, kFoldCallsPushed, block), *calls + 1, nullptr);
  AL_SYNCHRONIZE();
  for (; taken < rounds; ++taken) mark_part<Number>(job, begin_of(chunks, taken), length_of(chunks, taken));
  keep_number(last, number);
  if (AL_THREAD == 0) ++*calls;
}

#ifdef __CUDACC__
// Of two neighbours the first pushes and the second takes, so that those that the others wait for begin no later than those
// that wait.
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_bulk_fold(const BulkFold& job) {
  const int block = static_cast<int>(blockIdx.x / 2);
  blockIdx.x % 2 == 0 ? push_fold<Number>(job, block) : take_fold<Number, Operator, kMean>(job, block);
}
#endif

}  // namespace altorch::kernels
