// SPDX-License-Identifier: BSD-3-Clause
// Blocks of data between pairs of ranks in one kernel per rank, by the LL protocol. Include after ll.cuh. Each pair has slots of
// its own, and each thread block of a pair counts its own exchanges. Both ranks know both sizes, so they use the same number
// of thread blocks.
//
// Two halves for each direction, used in turn, are enough: in each exchange each thread block sends at least one word and
// waits for one word of the peer.

namespace altorch::kernels {

// As PairExchange in device/device.h.
struct Pairs {
  struct Pair {
    unsigned long long* send_slots;
    const unsigned long long* theirs;
    const void* input;
    void* output;
    unsigned* numbers;
    unsigned sent, taken;
    int blocks;
    int unused;
  };
  Pair pairs[16];  // PairExchange::kMost
  const unsigned* aborted;
  unsigned long long poison;
  long long half, region;
  int number;
  int reserved;
};

AL_DEVICE Turn turn_of(const Pairs& job, const Pairs::Pair& pair, long long block) {
  const unsigned exchange = next_number(pair.numbers[block]);
  return {exchange, words_of(exchange, job.half, job.region, block), block, pair.blocks};
}

AL_DEVICE void send_pair(const Pairs::Pair& pair, const Turn& turn) {
  const auto* input = static_cast<const unsigned char*>(pair.input);
  unsigned long long* words = pair.send_slots + turn.at;
  const Range units = part_of((pair.sent + 3ll) / 4, turn.block, turn.blocks);
  if (units.begin == units.end && AL_THREAD == 0) store_word(words, 0, turn.exchange);
  for_each_unit<kUnitsAtOnce<unsigned char>>(
      units, whole_units(input, pair.sent), [&](auto several, long long first) {
        constexpr int kAtOnce = decltype(several)::kAtOnce;
        unsigned held[kAtOnce];
        for (int i = 0; i < kAtOnce; ++i) {
          const long long at = (first + i * static_cast<long long>(AL_THREADS)) * 4;
          held[i] = kAtOnce > 1 ? load_four(input + at) : load_unit(input + at, pair.sent - at).words[0];
        }
        for (int i = 0; i < kAtOnce; ++i)
          store_word(words + first + i * static_cast<long long>(AL_THREADS) - units.begin, held[i], turn.exchange);
      });
}

AL_DEVICE void take_pair(const Pairs& job, const Pairs::Pair& pair, const Turn& turn) {
  auto* output = static_cast<unsigned char*>(pair.output);
  const unsigned long long* words = pair.theirs + turn.at;
  const Range units = part_of((pair.taken + 3ll) / 4, turn.block, turn.blocks);
  unsigned ignored;
  if (units.begin == units.end && AL_THREAD == 0) take_word(words, turn.exchange, job.aborted, ignored);
  for_each_unit<kUnitsAtOnce<unsigned char>>(units, units.end, [&](auto several, long long first) {
    constexpr int kAtOnce = decltype(several)::kAtOnce;
    Words<unsigned char> parts[kAtOnce];
    const bool here = take_units(words, first - units.begin, AL_THREADS, turn.exchange, job.aborted, parts);
    for (int i = 0; i < kAtOnce; ++i) {
      const long long at = (first + i * static_cast<long long>(AL_THREADS)) * 4;
      for (int j = 0; !here && j < 4; ++j) parts[i].elements[j] = pattern_byte(job.poison, at + j);
      store_unit(output + at, pair.taken - at, parts[i]);
    }
  });
}

AL_DEVICE void end_turn(const Pairs::Pair& pair, const Turn& turn) {
  AL_SYNCHRONIZE();
  AL_LAUNCH_DEPENDENTS();
  if (AL_THREAD == 0) pair.numbers[turn.block] = turn.exchange;
}

AL_DEVICE void copy_own(const Pairs::Pair& pair, long long block, long long blocks) {
  using Wide = Pack<unsigned>;
  const auto addresses =
      reinterpret_cast<unsigned long long>(pair.output) | reinterpret_cast<unsigned long long>(pair.input);
  const long long first = block * AL_THREADS + AL_THREAD, step = blocks * AL_THREADS;
  const long long packs = addresses % sizeof(Wide) == 0 ? pair.sent / sizeof(Wide) : 0;
  for (long long at = first; at < packs; at += step)
    static_cast<Wide*>(pair.output)[at] = static_cast<const Wide*>(pair.input)[at];
  for (long long at = packs * static_cast<long long>(sizeof(Wide)) + first; at < pair.sent; at += step)
    static_cast<unsigned char*>(pair.output)[at] = static_cast<const unsigned char*>(pair.input)[at];
}

#ifdef __CUDACC__
// A row of thread blocks for each pair. Blocks of equal size may be exchanged in place: a thread overwrites only what it has
// sent.
AL_DEVICE void run_exchange_pairs(const Pairs& job) {
  const Pairs::Pair& pair = job.pairs[blockIdx.y];
  if (!pair.numbers) return copy_own(pair, blockIdx.x, gridDim.x);
  if (blockIdx.x >= pair.blocks) return;
  const Turn turn = turn_of(job, pair, blockIdx.x);
  send_pair(pair, turn);
  take_pair(job, pair, turn);
  end_turn(pair, turn);
}
#endif

}  // namespace altorch::kernels
