// Blocks between pairs of ranks in one kernel per rank: posted and taken word by word as in small.cuh, after
// which this comes. Every pair counts its own exchanges, and has areas of its own.
//
// Two areas for each direction, used in turn, are enough here too: both ranks of a pair post at least one word
// in every exchange and wait for one of the other.

namespace altorch::kernels {

// As PairExchange in device/device.h.
struct Pairs {
  struct Pair {
    unsigned long long* posts;         // this rank's words for the peer, of this exchange
    const unsigned long long* theirs;  // the peer's for this rank
    const void* input;
    void* output;
    unsigned sent, taken;  // bytes
    unsigned exchange;     // 0: this rank's block for itself
    unsigned unused;
  };
  Pair pairs[16];           // PairExchange::kMost
  const unsigned* aborted;  // not 0: give up
  unsigned long long poison;  // as in Small
  int number;                 // of pairs
  int reserved;
};

AL_DEVICE void post_pair(const Pairs::Pair& pair, long long block, long long blocks) {
  const auto* input = static_cast<const unsigned char*>(pair.input);
  for (long long at = block * AL_THREADS + AL_THREAD; at == 0 || at * 4 < pair.sent;
       at += blocks * AL_THREADS) {
    Words<unsigned char> word;
    for (int i = 0; i < 4; ++i) word.elements[i] = at * 4 + i < pair.sent ? input[at * 4 + i] : 0;
    store_word(pair.posts + at, word.words[0], pair.exchange);
  }
}

AL_DEVICE void take_pair(const Pairs& job, const Pairs::Pair& pair, long long block, long long blocks) {
  auto* output = static_cast<unsigned char*>(pair.output);
  for (long long at = block * AL_THREADS + AL_THREAD; at == 0 || at * 4 < pair.taken;
       at += blocks * AL_THREADS) {
    Words<unsigned char> word;
    if (!take_word(pair.theirs + at, pair.exchange, job.aborted, word.words[0]))
      for (int i = 0; i < 4; ++i) word.elements[i] = pattern_byte(job.poison, at * 4 + i);
    for (int i = 0; i < 4 && at * 4 + i < pair.taken; ++i) output[at * 4 + i] = word.elements[i];
  }
}

AL_DEVICE void copy_own(const Pairs::Pair& pair, long long block, long long blocks) {
  for (long long at = block * AL_THREADS + AL_THREAD; at < pair.sent; at += blocks * AL_THREADS)
    static_cast<unsigned char*>(pair.output)[at] = static_cast<const unsigned char*>(pair.input)[at];
}

#ifdef __CUDACC__
// A row of blocks for each pair. Blocks of equal size may be exchanged in place: a thread takes what it has
// posted.
__global__ void __launch_bounds__(512) exchange_pairs(const Pairs job) {
  const Pairs::Pair& pair = job.pairs[blockIdx.y];
  if (pair.exchange == 0) return copy_own(pair, blockIdx.x, gridDim.x);
  post_pair(pair, blockIdx.x, gridDim.x);
  take_pair(job, pair, blockIdx.x, gridDim.x);
}
#endif

}  // namespace altorch::kernels
