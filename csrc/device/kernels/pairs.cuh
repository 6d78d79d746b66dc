// Blocks between pairs of ranks in one kernel per rank: posted and taken word by word as in small.cuh, after
// which this comes. Every pair has areas of its own, and each of its blocks of threads counts its own exchanges:
// both ranks use as many of them, since both know what goes to and fro.
//
// Two areas for each direction, used in turn, are enough here too: in every exchange each block posts at least one
// word and waits for one of the peer's.

namespace altorch::kernels {

// As PairExchange in device/device.h.
struct Pairs {
  struct Pair {
    unsigned long long* posts;
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

AL_DEVICE void post_pair(const Pairs::Pair& pair, const Turn& turn) {
  const auto* input = static_cast<const unsigned char*>(pair.input);
  unsigned long long* words = pair.posts + turn.at;
  const Range units = part_of((pair.sent + 3ll) / 4, turn.block, turn.blocks);
  if (units.begin == units.end && AL_THREAD == 0) store_word(words, 0, turn.exchange);
  for (long long at = units.begin + AL_THREAD; at < units.end; at += AL_THREADS) {
    const auto unit = load_unit(input + at * 4, pair.sent - at * 4);
    store_word(words + at - units.begin, unit.words[0], turn.exchange);
  }
}

AL_DEVICE void take_pair(const Pairs& job, const Pairs::Pair& pair, const Turn& turn) {
  auto* output = static_cast<unsigned char*>(pair.output);
  const unsigned long long* words = pair.theirs + turn.at;
  const Range units = part_of((pair.taken + 3ll) / 4, turn.block, turn.blocks);
  unsigned ignored;
  if (units.begin == units.end && AL_THREAD == 0) take_word(words, turn.exchange, job.aborted, ignored);
  for (long long at = units.begin + AL_THREAD; at < units.end; at += AL_THREADS) {
    Words<unsigned char> word;
    if (!take_word(words + at - units.begin, turn.exchange, job.aborted, word.words[0]))
      for (int i = 0; i < 4; ++i) word.elements[i] = pattern_byte(job.poison, at * 4 + i);
    store_unit(output + at * 4, pair.taken - at * 4, word);
  }
}

AL_DEVICE void end_turn(const Pairs::Pair& pair, const Turn& turn) {
  AL_SYNCHRONIZE();
  if (AL_THREAD == 0) pair.numbers[turn.block] = turn.exchange;
}

AL_DEVICE void copy_own(const Pairs::Pair& pair, long long block, long long blocks) {
  for (long long at = block * AL_THREADS + AL_THREAD; at < pair.sent; at += blocks * AL_THREADS)
    static_cast<unsigned char*>(pair.output)[at] = static_cast<const unsigned char*>(pair.input)[at];
}

#ifdef __CUDACC__
// A row of blocks for each pair. Blocks of equal size may be exchanged in place: a thread takes what it has
// posted.
AL_DEVICE void run_exchange_pairs(const Pairs& job) {
  const Pairs::Pair& pair = job.pairs[blockIdx.y];
  if (!pair.numbers) return copy_own(pair, blockIdx.x, gridDim.x);
  if (blockIdx.x >= pair.blocks) return;
  const Turn turn = turn_of(job, pair, blockIdx.x);
  post_pair(pair, turn);
  take_pair(job, pair, turn);
  end_turn(pair, turn);
}
#endif

}  // namespace altorch::kernels
