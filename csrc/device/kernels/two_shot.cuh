// SPDX-License-Identifier: BSD-3-Clause
// Two-shot reduction: each rank reduces a share of every tile, and pushes the result to all ranks,
// or to one. Include after parts.cuh.
//
// It uses two slots in turn. A block that begins a round has seen all flags of the round before,
// and a rank raises that flag only after it has pulled everything of the round before that one.

namespace altorch::kernels {

// Where the data of a thread block's round lies in a slot area: two parts.
AL_DEVICE i64 parts_at(const BulkSlots& slots, i64 block, unsigned number) {
  return ((number & 1) * slots.blocks + block) * 2 * slots.part;
}

// A rank's share of a tile, in elements from the beginning of the vector.
struct Share {
  i64 at, count;
};
AL_DEVICE Share share_of(const TwoShotReduce& job, i64 tile, int rank) {
  const i64 at = rank * job.stride + tile * job.step, left = job.count - at;
  return {at, left < 0 ? 0 : left < job.share ? left : job.share};
}

// Poisons the results of a block's tiles from `first` on, which have not arrived.
template <class Number>
AL_DEVICE void poison_tiles(const TwoShotReduce& job, i64 first, bool takes_all) {
  for (i64 tile = first; takes_all && tile < job.tiles; tile += job.blocks) {
    for (int rank = 0; rank < job.slots.number; ++rank) {
      const Share share = share_of(job, tile, rank);
      poison_part<Number>(job, share.at, share.count);
    }
  }
}

// The vector is divided into tiles, and each tile into one share per rank. A rank reduces its share
// of a tile from all parts, and pushes the result at once. Other ranks pull it in the next round,
// together with the parts of the next tile.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_two_shot(const TwoShotReduce& job, i64 block) {
  using Stored = typename Number::Stored;
  constexpr i64 kElement = sizeof(Stored);
  const BulkSlots& slots = job.slots;
  auto* output = static_cast<Stored*>(job.output);
  const bool takes_all = job.goes_to == TwoShotReduce::kAll || job.goes_to == slots.rank;
  AL_SHARED(ShareJob, work);
  unsigned number = slots.numbers[block];
  i64 before = -1;  // the tile whose results are in flight
  for (i64 tile = block; tile < job.tiles || before >= 0; tile += job.blocks) {
    const bool reduces = tile < job.tiles;
    if (number == kAborted) {
      poison_tiles<Number>(job, tile, takes_all);
      break;
    }
    number = next_round(number);
    const i64 data = parts_at(slots, block, number);
    for (int turn = 1; reduces && turn < slots.number; ++turn) {
      const int rank = (slots.rank + turn) % slots.number;  // so that ranks do not all push to the same rank first
      const Share share = share_of(job, tile, rank);
      push_part<Number>(job, slots.theirs[rank] + data, share.at, share.count);
    }
    tell(slots, block, number, 0, slots.number);
    if (!await(slots, block, number, 0, slots.number)) {
      poison_tiles<Number>(job, before >= 0 ? before : tile, takes_all);
      number = kAborted;
      break;
    }
    for (int turn = 1; before >= 0 && takes_all && turn < slots.number; ++turn) {
      const int rank = (slots.rank + turn) % slots.number;
      const Share share = share_of(job, before, rank);
      copy_bytes(output + share.at, slots.mine[rank] + data + slots.part, share.count * kElement);
    }
    before = -1;
    if (!reduces) continue;
    const Share own = share_of(job, tile, slots.rank);
    if (AL_THREAD == 0) {
      begin_share(work, job);
      if (takes_all) work.results[work.results_number++] = output + own.at;
      const i64 next = parts_at(slots, block, next_round(number)) + slots.part;
      for (int rank = 0; rank < slots.number; ++rank) {
        work.parts[rank] = rank == slots.rank
                               ? static_cast<const void*>(static_cast<const Stored*>(job.input) + own.at)
                               : slots.mine[rank] + data;
        if (rank != slots.rank && (job.goes_to == TwoShotReduce::kAll || job.goes_to == rank))
          work.results[work.results_number++] = slots.theirs[rank] + next;
      }
    }
    AL_SYNCHRONIZE();
    reduce_share<Number, Operator, kMean>(work, own.count);
    AL_SYNCHRONIZE();
    before = tile;
  }
  keep_number(slots.numbers + block, number);
}

#ifdef __CUDACC__
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_two_shot_reduce(const TwoShotReduce& job) {
  reduce_two_shot<Number, Operator, kMean>(job, blockIdx.x);
}
#endif

}  // namespace altorch::kernels
