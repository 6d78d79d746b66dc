// Small collectives in one kernel per rank: every rank posts its part in pinned memory that all share, four
// bytes of data beside a four-byte number of the exchange in one store, and takes the others' parts as soon
// as they carry that number. No flag comes before or after. After numbers.cuh.
//
// There are two areas, used in turn. That is enough: every rank posts at least one word in every exchange and
// waits for one word of everybody, so nobody is two exchanges ahead of anybody.

#ifndef AL_PAUSE
#define AL_PAUSE()
#endif
#ifdef __CUDACC__
#define AL_THREADS blockDim.x
#define AL_THREAD threadIdx.x
#define AL_SYNCHRONIZE() __syncthreads()
#else
#define AL_THREADS 1
#define AL_THREAD 0
#define AL_SYNCHRONIZE()
#endif

namespace altorch::kernels {

// As SmallExchange in device/device.h.
struct Small {
  unsigned long long* areas[64];  // by rank, those of this exchange
  const unsigned* aborted;        // not 0: give up
  const void* input;
  void* output;
  long long posted;   // elements that this rank posts
  long long wanted;   // elements of the output, or of one block of it; 0: none
  long long skipped;  // elements in front of those wanted, in every part that is reduced
  int first, behind;  // the parts that are moved: those of ranks first <= rank < behind
  int rank, number;
  unsigned exchange;  // never 0
  int scaled;         // 1: this rank's part is multiplied with `factor`
  double factor;
  unsigned long long poison;  // what stands in the result where a part has not come, eight bytes again and again
};

AL_DEVICE unsigned char pattern_byte(unsigned long long pattern, long long at) {
  return static_cast<unsigned char>(pattern >> 8 * (at % 8));
}

AL_DEVICE unsigned long long load_word(const unsigned long long* word) {
#ifdef __CUDACC__
  return *static_cast<const volatile unsigned long long*>(word);
#else
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

AL_DEVICE void store_word(unsigned long long* word, unsigned data, unsigned exchange) {
  const unsigned long long both = static_cast<unsigned long long>(exchange) << 32 | data;
#ifdef __CUDACC__
  *static_cast<volatile unsigned long long*>(word) = both;
#else
  __atomic_store_n(word, both, __ATOMIC_RELEASE);
#endif
}

AL_DEVICE bool is_set(const unsigned* aborted) {
#ifdef __CUDACC__
  return *static_cast<const volatile unsigned*>(aborted) != 0;
#else
  return __atomic_load_n(aborted, __ATOMIC_ACQUIRE) != 0;
#endif
}

// Waits until the word belongs to this exchange; false when the exchange is given up instead.
AL_DEVICE bool take_word(const unsigned long long* at, unsigned exchange, const unsigned* aborted,
                         unsigned& data) {
  for (int polls = 1;; ++polls) {
    const unsigned long long word = load_word(at);
    data = static_cast<unsigned>(word);
    if (static_cast<unsigned>(word >> 32) == exchange) return true;
    if (polls % 1024 == 0 && is_set(aborted)) return false;
    AL_PAUSE();
  }
}
AL_DEVICE bool take_word(const Small& job, int rank, long long at, unsigned& data) {
  return take_word(job.areas[rank] + at, job.exchange, job.aborted, data);
}

// An element and the words that hold it: several elements to a word, or several words to an element.
template <class Stored>
union Words {
  static constexpr int kWords = sizeof(Stored) < 4 ? 1 : sizeof(Stored) / 4;
  static constexpr int kElements = sizeof(Stored) < 4 ? 4 / sizeof(Stored) : 1;
  unsigned words[kWords];
  Stored elements[kElements];
};

template <class Number>
AL_DEVICE typename Number::Stored own_element(const Small& job, long long at) {
  const auto stored = static_cast<const typename Number::Stored*>(job.input)[at];
  if constexpr (requires { Number::scale(Number::widen(stored), 1.0); }) {
    if (job.scaled) return Number::narrow(Number::scale(Number::widen(stored), job.factor));
  }
  return stored;
}

template <class Number>
AL_DEVICE void post(const Small& job, long long block, long long blocks) {
  using Unit = Words<typename Number::Stored>;
  const long long units = (job.posted + Unit::kElements - 1) / Unit::kElements;
  for (long long at = block * AL_THREADS + AL_THREAD; at < units; at += blocks * AL_THREADS) {
    Unit unit;
    for (int i = 0; i < Unit::kWords; ++i) unit.words[i] = 0;
    for (int i = 0; i < Unit::kElements; ++i) {
      if (at * Unit::kElements + i < job.posted)
        unit.elements[i] = own_element<Number>(job, at * Unit::kElements + i);
    }
    for (int i = 0; i < Unit::kWords; ++i)
      store_word(job.areas[job.rank] + at * Unit::kWords + i, unit.words[i], job.exchange);
  }
  if (units == 0 && block == 0 && AL_THREAD == 0) store_word(job.areas[job.rank], 0, job.exchange);
}

// `whole` turns false where the element has not come.
template <class Number>
AL_DEVICE typename Number::Stored take_element(const Small& job, int rank, long long at, bool& whole) {
  using Unit = Words<typename Number::Stored>;
  Unit unit;
  for (int i = 0; i < Unit::kWords; ++i)
    whole &= take_word(job, rank, at / Unit::kElements * Unit::kWords + i, unit.words[i]);
  return unit.elements[at % Unit::kElements];
}

// An element of the type that looks like no result.
template <class Number>
AL_DEVICE typename Number::Stored poisoned(const Small& job) {
  union {
    unsigned char bytes[sizeof(typename Number::Stored)];
    typename Number::Stored element;
  } made;
  for (int i = 0; i < static_cast<int>(sizeof made.bytes); ++i) made.bytes[i] = pattern_byte(job.poison, i);
  return made.element;
}

// One word of everybody: see above.
AL_DEVICE void meet(const Small& job, long long block) {
  if (block != 0) return;
  unsigned ignored;
  for (int rank = AL_THREAD; rank < job.number; rank += AL_THREADS) take_word(job, rank, 0, ignored);
}

// What this block reads of its input for others, it has read before it writes the output, which may be the
// same memory: a block takes the elements that it has posted.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_small(const Small& job, long long block, long long blocks) {
  post<Number>(job, block, blocks);
  AL_SYNCHRONIZE();
  using Unit = Words<typename Number::Stored>;
  const long long units = (job.wanted + Unit::kElements - 1) / Unit::kElements;
  for (long long unit = block * AL_THREADS + AL_THREAD; unit < units; unit += blocks * AL_THREADS) {
    for (int i = 0; i < Unit::kElements; ++i) {
      const long long at = unit * Unit::kElements + i;
      if (at >= job.wanted) break;
      typename Number::Computed sum{};
      bool whole = true;
      for (int rank = 0; rank < job.number; ++rank) {
        const auto part = Number::widen(rank == job.rank ? own_element<Number>(job, job.skipped + at)
                                                         : take_element<Number>(job, rank, job.skipped + at, whole));
        sum = rank == 0 ? part : Operator::template apply<Number>(sum, part);
      }
      if constexpr (kMean) sum = Number::mean(sum, job.number);
      static_cast<typename Number::Stored*>(job.output)[at] =
          whole ? Number::narrow(sum) : poisoned<Number>(job);
    }
  }
  meet(job, block);
}

// Parts of `wanted` bytes from the ranks first to behind, side by side.
AL_DEVICE void move_small(const Small& job, long long block, long long blocks) {
  using Byte = Plain<unsigned char>;
  post<Byte>(job, block, blocks);
  AL_SYNCHRONIZE();
  unsigned char* output = static_cast<unsigned char*>(job.output);
  const long long units = (job.wanted + 3) / 4;
  for (long long unit = block * AL_THREADS + AL_THREAD; unit < units; unit += blocks * AL_THREADS) {
    for (int rank = job.first; rank < job.behind; ++rank) {
      Words<unsigned char> word;
      if (rank == job.rank) {
        for (int i = 0; i < 4 && unit * 4 + i < job.wanted; ++i)
          word.elements[i] = own_element<Byte>(job, unit * 4 + i);
      } else if (!take_word(job, rank, unit, word.words[0])) {
        for (int i = 0; i < 4; ++i) word.elements[i] = pattern_byte(job.poison, unit * 4 + i);
      }
      for (int i = 0; i < 4 && unit * 4 + i < job.wanted; ++i)
        output[(rank - job.first) * job.wanted + unit * 4 + i] = word.elements[i];
    }
  }
  meet(job, block);
}

#ifdef __CUDACC__
template <class Number, class Operator, bool kMean>
__global__ void __launch_bounds__(512) small_reduce(const Small job) {
  reduce_small<Number, Operator, kMean>(job, blockIdx.x, gridDim.x);
}
__global__ void __launch_bounds__(512) small_move(const Small job) { move_small(job, blockIdx.x, gridDim.x); }
#endif

}  // namespace altorch::kernels
