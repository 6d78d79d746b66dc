// SPDX-License-Identifier: BSD-3-Clause
// Blocks of data between pairs of ranks in one kernel per rank, by the LL protocol. Include after
// ll.cuh. Each pair has slots of its own, and each thread block of a pair counts its own exchanges.
// Both ranks know both sizes, so they use the same number of thread blocks.
//
// Two halves for each direction, used in turn, are enough: in each exchange each thread block sends
// at least one word and waits for one word of the peer.

namespace altorch::kernels {

AL_DEVICE Turn turn_of(const PairExchange& job, const PairExchange::Pair& pair, i64 block) {
  const unsigned exchange = next_number(pair.numbers[block]);
  return {exchange, words_of(exchange, job.half, job.region, block), block, pair.blocks};
}

AL_DEVICE void send_pair(const PairExchange::Pair& pair, const Turn& turn) {
  const auto* input = static_cast<const unsigned char*>(pair.input);
  u64* words = pair.send_slots + turn.at;
  const Range units = part_of((pair.sent + 3ll) / 4, turn.block, turn.blocks);
  if (units.begin == units.end && AL_THREAD == 0) store_word(words, 0, turn.exchange);
  for_each_unit<kUnitsAtOnce<unsigned char>>(
      units, whole_units(input, pair.sent), [&](auto several, i64 first) {
        constexpr int kAtOnce = decltype(several)::kAtOnce;
        unsigned held[kAtOnce];
        for (int i = 0; i < kAtOnce; ++i) {
          const i64 at = (first + i * static_cast<i64>(AL_THREADS)) * 4;
          held[i] = kAtOnce > 1 ? load_four(input + at) : load_unit(input + at, pair.sent - at).words[0];
        }
        for (int i = 0; i < kAtOnce; ++i)
          store_word(words + first + i * static_cast<i64>(AL_THREADS) - units.begin, held[i], turn.exchange);
      });
}

AL_DEVICE void take_pair(const PairExchange& job, const PairExchange::Pair& pair, const Turn& turn) {
  auto* output = static_cast<unsigned char*>(pair.output);
  const u64* words = pair.theirs + turn.at;
  const Range units = part_of((pair.taken + 3ll) / 4, turn.block, turn.blocks);
  unsigned ignored;
  if (units.begin == units.end && AL_THREAD == 0) take_word(words, turn.exchange, job.aborted, ignored);
  for_each_unit<kUnitsAtOnce<unsigned char>>(units, units.end, [&](auto several, i64 first) {
    constexpr int kAtOnce = decltype(several)::kAtOnce;
    Words<unsigned char> parts[kAtOnce];
    const bool here = take_units(words, first - units.begin, AL_THREADS, turn.exchange, job.aborted, parts);
    for (int i = 0; i < kAtOnce; ++i) {
      const i64 at = (first + i * static_cast<i64>(AL_THREADS)) * 4;
      for (int j = 0; !here && j < 4; ++j) parts[i].elements[j] = pattern_byte(job.poison, at + j);
      store_unit(output + at, pair.taken - at, parts[i]);
    }
  });
}

AL_DEVICE void end_turn(const PairExchange::Pair& pair, const Turn& turn) {
  AL_SYNCHRONIZE();
  AL_LAUNCH_DEPENDENTS();
  if (AL_THREAD == 0) pair.numbers[turn.block] = turn.exchange;
}

AL_DEVICE void copy_own(const PairExchange::Pair& pair, i64 block, i64 blocks) {
  using Wide = Pack<unsigned>;
  const auto addresses =
      reinterpret_cast<u64>(pair.output) | reinterpret_cast<u64>(pair.input);
  const i64 first = block * AL_THREADS + AL_THREAD, step = blocks * AL_THREADS;
  const i64 packs = addresses % sizeof(Wide) == 0 ? pair.sent / sizeof(Wide) : 0;
  for (i64 at = first; at < packs; at += step)
    static_cast<Wide*>(pair.output)[at] = static_cast<const Wide*>(pair.input)[at];
  for (i64 at = packs * static_cast<i64>(sizeof(Wide)) + first; at < pair.sent; at += step)
    static_cast<unsigned char*>(pair.output)[at] = static_cast<const unsigned char*>(pair.input)[at];
}

#ifdef __CUDACC__
// A row of thread blocks for each pair. Blocks of equal size may be exchanged in place: a thread
// overwrites only what it has sent.
AL_DEVICE void run_exchange_pairs(const PairExchange& job) {
  const PairExchange::Pair& pair = job.pairs[blockIdx.y];
  if (!pair.numbers) return copy_own(pair, blockIdx.x, gridDim.x);
  if (blockIdx.x >= pair.blocks) return;
  const Turn turn = turn_of(job, pair, blockIdx.x);
  send_pair(pair, turn);
  take_pair(job, pair, turn);
  end_turn(pair, turn);
}
#endif

}  // namespace altorch::kernels
