// SPDX-License-Identifier: BSD-3-Clause
// Small collectives in one kernel per rank, by the LL protocol, as in NCCL: a word has 4 bytes of
// data and the 4-byte number of the exchange, and is written by one store. A rank writes its words
// into send slots, which are the receive slots of its peers. A peer that reads the number has the
// data, so no flag is needed. In pinned memory that the ranks share, a rank has one send slot for
// all peers; in GPU memory it has one for each peer. Include after numbers.cuh.
//
// The numbers are counted on the device, so that a captured call can be replayed. Each thread block
// counts its own exchanges and has a region of its own in every slot. Block b of a rank exchanges
// only with block b of other ranks, so blocks of one rank do not wait for each other. A slot has
// two halves, used in turn. Two are enough: in each exchange each block sends at least one word to
// each rank and waits for one word from each rank, so no rank is two exchanges ahead of another.

#ifndef AL_PAUSE
#define AL_PAUSE()
#endif
// A thread block: the index of a thread, a barrier, whether a condition holds for all threads, and
// an object that they share. Tests bring blocks of their own.
#ifdef __CUDACC__
#define AL_THREADS blockDim.x
#define AL_THREAD threadIdx.x
#define AL_SYNCHRONIZE() __syncthreads()
#define AL_ALL(condition) __syncthreads_and(condition)
#define AL_SHARED(type, name) __shared__ type name
#elif !defined(AL_THREADS)
#define AL_THREADS 1
#define AL_THREAD 0
#define AL_SYNCHRONIZE()
#define AL_ALL(condition) (condition)
#define AL_SHARED(type, name) type name
#endif

namespace altorch::kernels {

AL_DEVICE unsigned char pattern_byte(u64 pattern, i64 at) {
  return static_cast<unsigned char>(pattern >> 8 * (at % 8));
}

AL_DEVICE u64 load_word(const u64* word) {
#ifdef __CUDACC__
  return *static_cast<const volatile u64*>(word);
#else
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

AL_DEVICE void store_word(u64* word, unsigned data, unsigned exchange) {
  const u64 both = static_cast<u64>(exchange) << 32 | data;
#ifdef __CUDACC__
  *static_cast<volatile u64*>(word) = both;
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

// After 0xFFFFFFFF, which is odd, comes 2: it is even, so that the two halves still alternate, and
// it is not 0.
AL_DEVICE unsigned next_number(unsigned last) { return last == 0xFFFFFFFFu ? 2 : last + 1; }

// The offset of a block's words of this exchange from the beginning of a slot.
AL_DEVICE i64 words_of(unsigned exchange, i64 half, i64 region, i64 block) {
  return (exchange & 1) * half + block * region;
}

// A range of units. part_of() gives each block the same number of units; the last blocks may have
// fewer.
struct Range {
  i64 begin, end;
};
AL_DEVICE Range part_of(i64 units, i64 block, i64 blocks) {
  const i64 each = (units + blocks - 1) / blocks, begin = block * each, end = begin + each;
  return {begin < units ? begin : units, end < units ? end : units};
}

// Waits until the word belongs to this exchange. Returns false if the call was aborted.
AL_DEVICE bool take_word(const u64* at, unsigned exchange, const unsigned* aborted,
                         unsigned& data) {
  for (int polls = 1;; ++polls) {
    const u64 word = load_word(at);
    data = static_cast<unsigned>(word);
    if (static_cast<unsigned>(word >> 32) == exchange) return true;
    if (polls % 1024 == 0 && is_set(aborted)) return false;
    AL_PAUSE();
  }
}
// An element and the words that hold it: several elements to a word, or several words to an
// element.
template <class Stored>
union Words {
  static constexpr int kWords = sizeof(Stored) < 4 ? 1 : sizeof(Stored) / 4;
  static constexpr int kElements = sizeof(Stored) < 4 ? 4 / sizeof(Stored) : 1;
  unsigned words[kWords];
  Stored elements[kElements];
};

// Loads 4 bytes from an address that is aligned to 4 bytes.
AL_DEVICE unsigned load_four(const void* at) {
#ifdef __CUDACC__
  return *static_cast<const unsigned*>(at);
#else
  unsigned four;
  __builtin_memcpy(&four, at, sizeof four);
  return four;
#endif
}
AL_DEVICE void store_four(void* at, unsigned four) {
#ifdef __CUDACC__
  *static_cast<unsigned*>(at) = four;
#else
  __builtin_memcpy(at, &four, sizeof four);
#endif
}
// Whether the elements of a unit can move as one word. `left`: how many elements of the vector are
// left.
template <class Stored>
AL_DEVICE bool goes_whole(const Stored* at, i64 left) {
  return Words<Stored>::kElements > 1 && left >= Words<Stored>::kElements &&
         reinterpret_cast<u64>(at) % 4 == 0;
}

// Loads a unit of a vector that has `left` elements left there. Elements after its end are 0.
template <class Stored>
AL_DEVICE Words<Stored> load_unit(const Stored* at, i64 left) {
  Words<Stored> unit;
  for (int i = 0; i < Words<Stored>::kWords; ++i) unit.words[i] = 0;
  if (goes_whole(at, left)) {
    unit.words[0] = load_four(at);
  } else {
    for (int i = 0; i < Words<Stored>::kElements && i < left; ++i) unit.elements[i] = at[i];
  }
  return unit;
}
template <class Stored>
AL_DEVICE void store_unit(Stored* at, i64 left, const Words<Stored>& unit) {
  if (goes_whole(at, left)) return store_four(at, unit.words[0]);
  for (int i = 0; i < Words<Stored>::kElements && i < left; ++i) at[i] = unit.elements[i];
}

// How many units of a vector, from its beginning, can be loaded as they are.
template <class Stored>
AL_DEVICE i64 whole_units(const Stored* vector, i64 count) {
  if (Words<Stored>::kElements == 1) return count;
  return reinterpret_cast<u64>(vector) % 4 == 0 ? count / Words<Stored>::kElements : 0;
}
// How many units of a thread are in flight together: one unit takes as long as all of them.
template <class Stored>
constexpr int kUnitsAtOnce = Words<Stored>::kWords > 2 ? 1 : 4 / Words<Stored>::kWords;

// Loads units of this rank's input, `first` elements from its beginning, `stride` apart. Several
// units at once must be whole.
template <class Number, int kAtOnce>
AL_DEVICE void own_units(const LlExchange& job, i64 first, i64 unit, i64 stride,
                         Words<typename Number::Stored> (&own)[kAtOnce]) {
  using Unit = Words<typename Number::Stored>;
  const auto* input = static_cast<const typename Number::Stored*>(job.input) + first;
  AL_UNROLL for (int turn = 0; turn < kAtOnce; ++turn) {
    const i64 at = (unit + turn * stride) * Unit::kElements;
    if constexpr (kAtOnce == 1) {
      own[turn] = load_unit(input + at, job.count - at);
    } else if constexpr (Unit::kElements > 1) {
      own[turn].words[0] = load_four(input + at);
    } else {
      own[turn].elements[0] = input[at];
    }
  }
  if constexpr (requires { Number::scale(Number::widen(own[0].elements[0]), 1.0); }) {
    AL_UNROLL for (int turn = 0; job.scaled && turn < kAtOnce; ++turn) {
      AL_UNROLL for (int i = 0; i < Unit::kElements; ++i)
        own[turn].elements[i] = Number::narrow(Number::scale(Number::widen(own[turn].elements[i]), job.factor));
    }
  }
}

// One block's part of one exchange.
struct Turn {
  unsigned exchange;
  i64 at;  // the offset of its words
  i64 block, blocks;
};
AL_DEVICE Turn turn_of(const LlExchange& job, i64 block, i64 blocks) {
  const unsigned exchange = next_number(job.numbers[block]);
  return {exchange, words_of(exchange, job.half, job.region, block), block, blocks};
}
// Called after everything that the threads of the block do in the exchange.
AL_DEVICE void end_turn(const LlExchange& job, const Turn& turn) {
  AL_SYNCHRONIZE();
  AL_LAUNCH_DEPENDENTS();
  if (AL_THREAD == 0) job.numbers[turn.block] = turn.exchange;
}

template <class Number>
AL_DEVICE Range units_of(const LlExchange& job, const Turn& turn) {
  using Unit = Words<typename Number::Stored>;
  return part_of((job.count + Unit::kElements - 1) / Unit::kElements, turn.block, turn.blocks);
}

// Calls act(Several<n>(), first) for the units of a range that belong to this thread: n units,
// AL_THREADS apart. n is kAtOnce while so many whole units are left, then 1.
template <int kNumber>
struct Several {
  static constexpr int kAtOnce = kNumber;
};
template <int kAtOnce, class Act>
AL_DEVICE void for_each_unit(const Range& units, i64 whole, const Act& act) {
  i64 at = units.begin + AL_THREAD;
  if constexpr (kAtOnce > 1) {
    const i64 end = whole < units.end ? whole : units.end;
    for (; at + (kAtOnce - 1) * static_cast<i64>(AL_THREADS) < end; at += kAtOnce * static_cast<i64>(AL_THREADS))
      act(Several<kAtOnce>(), at);
  }
  for (; at < units.end; at += AL_THREADS) act(Several<1>(), at);
}

// Writes these units of this rank's part into each send slot. A slot that gets no data gets one
// word with only the number.
template <class Number>
AL_DEVICE void send_units(const LlExchange& job, const Turn& turn, const Range& units) {
  using Stored = typename Number::Stored;
  using Unit = Words<Stored>;
  for (int slot = 0; slot < job.send_slot_count; ++slot) {
    if (job.send_slot_count > 1 && slot == job.rank) continue;
    u64* words = job.send_slots[slot] + turn.at;
    const bool full =
        job.sends_data && (job.send_slot_count == 1 || job.receiver < 0 || job.receiver == slot) && units.begin < units.end;
    if (!full) {
      if (AL_THREAD == 0) store_word(words, 0, turn.exchange);
      continue;
    }
    const i64 first = slot * job.stride;
    const i64 whole = whole_units(static_cast<const Stored*>(job.input) + first, job.count);
    for_each_unit<kUnitsAtOnce<Stored>>(units, whole, [&](auto several, i64 at) {
      Unit own[decltype(several)::kAtOnce];
      own_units<Number>(job, first, at, AL_THREADS, own);
      AL_UNROLL for (const Unit& unit : own) {
        AL_UNROLL for (int i = 0; i < Unit::kWords; ++i)
          store_word(words + (at - units.begin) * Unit::kWords + i, unit.words[i], turn.exchange);
        at += AL_THREADS;
      }
    });
  }
}

template <class Number>
AL_DEVICE void send_units(const LlExchange& job, const Turn& turn) {
  send_units<Number>(job, turn, units_of<Number>(job, turn));
}

// Waits for units that a rank sends, `stride` apart, and loads them. Returns false if the call was
// aborted.
template <class Stored, int kAtOnce>
AL_DEVICE bool take_units(const u64* words, i64 unit, i64 stride, unsigned exchange,
                          const unsigned* aborted, Words<Stored> (&taken)[kAtOnce]) {
  constexpr int kWords = Words<Stored>::kWords;
  for (int polls = 1;; ++polls) {
    u64 found[kAtOnce][kWords];
    AL_UNROLL for (int turn = 0; turn < kAtOnce; ++turn)
      AL_UNROLL for (int i = 0; i < kWords; ++i) found[turn][i] = load_word(words + (unit + turn * stride) * kWords + i);
    bool all = true;
    AL_UNROLL for (int turn = 0; turn < kAtOnce; ++turn) {
      AL_UNROLL for (int i = 0; i < kWords; ++i) {
        taken[turn].words[i] = static_cast<unsigned>(found[turn][i]);
        all &= static_cast<unsigned>(found[turn][i] >> 32) == exchange;
      }
    }
    if (all) return true;
    if (polls % 1024 == 0 && is_set(aborted)) return false;
    AL_PAUSE();
  }
}

// The poison pattern as an element.
template <class Number>
AL_DEVICE typename Number::Stored poisoned(const LlExchange& job) {
  union {
    unsigned char bytes[sizeof(typename Number::Stored)];
    typename Number::Stored element;
  } made;
  AL_UNROLL for (int i = 0; i < static_cast<int>(sizeof made.bytes); ++i) made.bytes[i] = pattern_byte(job.poison, i);
  return made.element;
}

// Waits for one word from each rank from which this block has taken no data, so that no rank gets
// two exchanges ahead.
AL_DEVICE void meet(const LlExchange& job, const Turn& turn, bool took, int first, int behind) {
  unsigned ignored;
  for (int rank = AL_THREAD; rank < job.number; rank += AL_THREADS) {
    if (rank == job.rank || (took && rank >= first && rank < behind)) continue;
    take_word(job.receive_slots[rank] + turn.at, turn.exchange, job.aborted, ignored);
  }
}

// Reduces units of all ranks, AL_THREADS apart, in the order of the ranks. `begin`: the first unit
// that the block has sent. Returns false if the call was aborted.
template <class Number, class Operator, int kAtOnce, int kElements>
AL_DEVICE bool reduce_units(const LlExchange& job, const Turn& turn, i64 first, i64 begin,
                            typename Number::Computed (&sums)[kAtOnce][kElements]) {
  bool here = true;
  for (int rank = 0; rank < job.number; ++rank) {
    Words<typename Number::Stored> parts[kAtOnce];
    if (rank == job.rank) {
      own_units<Number>(job, job.own, first, AL_THREADS, parts);
    } else {
      here &= take_units(job.receive_slots[rank] + turn.at, first - begin, AL_THREADS, turn.exchange, job.aborted, parts);
    }
    AL_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      AL_UNROLL for (int j = 0; j < kElements; ++j) {
        const auto element = Number::widen(parts[i].elements[j]);
        sums[i][j] = rank == 0 ? element : Operator::template apply<Number>(sums[i][j], element);
      }
    }
  }
  return here;
}

// Reads one element of a rank's unit again, for the slow path. A receive slot stays valid until the
// second exchange after this one.
template <class Number>
AL_DEVICE typename Number::Stored reread_element(const LlExchange& job, const Turn& turn, int rank, i64 unit, i64 begin,
                                             int element) {
  Words<typename Number::Stored> again[1];
  if (rank == job.rank) {
    own_units<Number>(job, job.own, unit, 0, again);
  } else {
    take_units(job.receive_slots[rank] + turn.at, unit - begin, 0, turn.exchange, job.aborted, again);
  }
  return again[0].elements[element];
}

// Works in place, too: a thread writes only elements that it has read and sent before.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_ll(const LlExchange& job, i64 block, i64 blocks) {
  using Stored = typename Number::Stored;
  using Unit = Words<Stored>;
  const Turn turn = turn_of(job, block, blocks);
  send_units<Number>(job, turn);
  const Range units = units_of<Number>(job, turn), none = {0, 0};
  const i64 whole = whole_units(static_cast<const Stored*>(job.input) + job.own, job.count);
  for_each_unit<kUnitsAtOnce<Stored>>(job.wants ? units : none, whole, [&](auto several, i64 first) {
    constexpr int kAtOnce = decltype(several)::kAtOnce;
    typename Number::Computed sums[kAtOnce][Unit::kElements]{};
    const bool here = reduce_units<Number, Operator>(job, turn, first, units.begin, sums);
    AL_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      Unit result;
      const i64 unit = first + i * static_cast<i64>(AL_THREADS), at = unit * Unit::kElements;
      AL_UNROLL for (int j = 0; j < Unit::kElements; ++j) {
        const auto part = [&job, turn, unit, begin = units.begin, j](int rank) {
          return reread_element<Number>(job, turn, rank, unit, begin, j);
        };
        result.elements[j] =
            here ? finalize<Number, kMean>(sums[i][j], job.number, part) : poisoned<Number>(job);
      }
      store_unit(static_cast<Stored*>(job.output) + at, job.count - at, result);
    }
  });
  meet(job, turn, job.wants && units.begin < units.end, 0, job.number);
  end_turn(job, turn);
}

// Moves parts of `count` bytes from the ranks first to behind - 1 into the output, side by side.
AL_DEVICE void move_ll(const LlExchange& job, i64 block, i64 blocks) {
  using Bytes = Plain<unsigned char>;
  using Unit = Words<unsigned char>;
  const Turn turn = turn_of(job, block, blocks);
  send_units<Bytes>(job, turn);
  unsigned char* output = static_cast<unsigned char*>(job.output);
  const Range units = units_of<Bytes>(job, turn), none = {0, 0};
  const i64 whole = whole_units(static_cast<const unsigned char*>(job.input), job.count);
  for_each_unit<kUnitsAtOnce<unsigned char>>(job.wants ? units : none, whole, [&](auto several, i64 first) {
    constexpr int kAtOnce = decltype(several)::kAtOnce;
    for (int rank = job.first; rank < job.behind; ++rank) {
      Unit parts[kAtOnce];
      bool here = true;
      if (rank == job.rank) {
        own_units<Bytes>(job, 0, first, AL_THREADS, parts);
      } else {
        here = take_units(job.receive_slots[rank] + turn.at, first - units.begin, AL_THREADS, turn.exchange, job.aborted, parts);
      }
      AL_UNROLL for (int i = 0; i < kAtOnce; ++i) {
        const i64 at = (first + i * static_cast<i64>(AL_THREADS)) * 4;
        AL_UNROLL for (int j = 0; !here && j < 4; ++j) parts[i].elements[j] = pattern_byte(job.poison, at + j);
        store_unit(output + (rank - job.first) * job.count + at, job.count - at, parts[i]);
      }
    }
  });
  meet(job, turn, job.wants && units.begin < units.end, job.first, job.behind);
  end_turn(job, turn);
}

#ifdef __CUDACC__
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_ll_reduce(const LlExchange& job) {
  reduce_ll<Number, Operator, kMean>(job, blockIdx.x, gridDim.x);
}
AL_DEVICE void run_ll_move(const LlExchange& job) { move_ll(job, blockIdx.x, gridDim.x); }
#endif

}  // namespace altorch::kernels
