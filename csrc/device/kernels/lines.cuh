// Rounds in which a warp pushes whole lines of 128 bytes: 120 of data, and 8 of the round's number behind them. Between the GPUs
// that this serves (CudaDevice::links) a line that a warp stores in one instruction arrives as a whole or from its beginning on, so
// that whoever has seen its number may load its data: no flag comes behind the data, and no fence before one. NCCL calls this LL128,
// and the hardware promises it no more than to NCCL. After mail.cuh.
//
// Every warp has places of its own, and goes through its rounds with the same warp of the other ranks: nobody waits for a block
// of threads. It has four slots with each of the others, used in turn, and is one round further with what it pushes than with what
// it takes. In every round it pushes something to everybody, a line with a number if nothing else, and takes it of everybody. So
// whoever has taken round n knows that the others have taken round n - 2, and may use that one's slot for n + 2.
//
// Whoever gives up stays given up: what he would push in later calls is made of what has not come.

// A warp has 32 lanes, each a thread; on the host one thread plays all of them.
#ifdef __CUDACC__
#define AL_LANES 1
#define AL_LANE(i) (threadIdx.x % 32)
#define AL_WARP_ALL(condition) __all_sync(0xFFFFFFFFu, condition)
#define AL_WARP_SYNCHRONIZE() __syncwarp()
#else
#define AL_LANES 32
#define AL_LANE(i) (i)
#define AL_WARP_ALL(condition) (condition)
#define AL_WARP_SYNCHRONIZE()
#endif

namespace altorch::kernels {

// As LinePlaces in device/device.h.
struct LinePlaces {
  unsigned long long* theirs[16];
  const unsigned long long* mine[16];
  unsigned long long* numbers;
  const unsigned* aborted;
  int rank, number, warps, reserved;
};

// As LineFold in device/device.h.
struct LineFold {
  LinePlaces places;
  const void* input;
  void* output;
  long long begins[16], counts[16], longest;
  int blocks, scaled;
  double factor;
  unsigned long long poison;
};

// As LineMail in device/device.h.
struct LineMail {
  LinePlaces places;
  const void* input[16];
  void* output[16];
  long long sent[16], taken[16];
  int blocks[16];
  unsigned long long poison[16];
};

// Rounds that it is ahead: with three, 16 MiB between two H100s take 71 us, and not 64.
constexpr int kAhead = 1;
// A unit is eight lines, stored in two rows: 60 packs of 16 bytes. Of a line the last lane carries the number: it has one pack, in
// two halves, and every other lane two.
constexpr int kUnitPacks = 60, kUnitWords = 128, kLinesOfUnit = 8, kRowWords = 64, kUnitsOfRound = 2, kSlots = 4,
              kWarpsOfBlock = 16;

struct Halves {
  unsigned long long low, high;
};
struct LanePacks {
  Halves first, second;
};
AL_DEVICE bool carries_number(int lane) { return lane % 8 == 7; }
AL_DEVICE int first_pack(int lane) { return carries_number(lane) ? 56 + lane / 8 : lane - lane / 8; }
AL_DEVICE int second_pack(int lane) { return first_pack(lane) + 28; }  // not of lanes that carry the number

AL_DEVICE void store_halves(unsigned long long* at, unsigned long long low, unsigned long long high) {
#ifdef __CUDACC__
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(low), "l"(high) : "memory");
#else  // in the order of the lanes, the number last
  __atomic_store_n(at, low, __ATOMIC_RELAXED);
  __atomic_store_n(at + 1, high, __ATOMIC_RELEASE);
#endif
}
AL_DEVICE Halves load_halves(const unsigned long long* at) {
  Halves found;
#ifdef __CUDACC__
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(found.low), "=l"(found.high) : "l"(at) : "memory");
#else  // the other way round
  found.high = __atomic_load_n(at + 1, __ATOMIC_ACQUIRE);
  found.low = __atomic_load_n(at, __ATOMIC_RELAXED);
#endif
  return found;
}

AL_DEVICE unsigned long long& number_at(const LinePlaces& places, int peer, int warp) {
  return places.numbers[static_cast<long long>(peer) * places.warps + warp];
}
AL_DEVICE unsigned long long number_of(const LinePlaces& places, int peer, int warp, long long round) {
  return number_at(places, peer, warp) + 1 + static_cast<unsigned long long>(round);
}
// Where a warp has the units of a round, from the beginning of a place.
AL_DEVICE long long units_at(int warp, unsigned long long number) {
  return (static_cast<long long>(warp) * kSlots + static_cast<long long>(number % kSlots)) * kUnitsOfRound * kUnitWords;
}
AL_DEVICE long long units_in(long long packs) { return (packs + kUnitPacks - 1) / kUnitPacks; }
AL_DEVICE long long rounds_for(long long units, int warps) {
  const long long each = static_cast<long long>(warps) * kUnitsOfRound;
  return units <= each ? 1 : (units + each - 1) / each;
}
AL_DEVICE long long unit_of(long long round, int place, int warp, int warps) {
  return (round * kUnitsOfRound + place) * warps + warp;
}

// A vector as packs, the last one with nothing behind its end.
template <class Stored>
struct PackedVector {
  const Stored* elements;
  long long count;
};
template <class Stored>
AL_DEVICE long long packs_of(long long count) {
  return (count + Pack<Stored>::kLength - 1) / Pack<Stored>::kLength;
}
template <class Stored>
AL_DEVICE Halves load_pack(const PackedVector<Stored>& vector, long long pack) {
  constexpr int kLength = Pack<Stored>::kLength;
  const long long at = pack * kLength, left = vector.count - at;
  if (left <= 0) return {0, 0};
  const Stored* from = vector.elements + at;
  if (left >= kLength && reinterpret_cast<unsigned long long>(from) % 16 == 0)
    return __builtin_bit_cast(Halves, *reinterpret_cast<const Pack<Stored>*>(from));
  if (left * static_cast<long long>(sizeof(Stored)) >= 16 && reinterpret_cast<unsigned long long>(from) % 4 == 0) {
    unsigned words[4];
    AL_UNROLL for (int i = 0; i < 4; ++i) words[i] = load_four(reinterpret_cast<const unsigned char*>(from) + 4 * i);
    return {words[0] | static_cast<unsigned long long>(words[1]) << 32,
            words[2] | static_cast<unsigned long long>(words[3]) << 32};
  }
  Pack<Stored> made{};
  AL_UNROLL for (int i = 0; i < kLength; ++i) {
    if (i < left) made.elements[i] = from[i];
  }
  return __builtin_bit_cast(Halves, made);
}
template <class Stored>
AL_DEVICE void store_pack(Stored* vector, long long count, long long pack, Halves value) {
  constexpr int kLength = Pack<Stored>::kLength;
  const long long at = pack * kLength, left = count - at;
  if (left <= 0) return;
  Stored* to = vector + at;
  const auto packed = __builtin_bit_cast(Pack<Stored>, value);
  if (left >= kLength && reinterpret_cast<unsigned long long>(to) % 16 == 0) {
    *reinterpret_cast<Pack<Stored>*>(to) = packed;
    return;
  }
  if (left * static_cast<long long>(sizeof(Stored)) >= 16 && reinterpret_cast<unsigned long long>(to) % 4 == 0) {
    const unsigned words[4] = {static_cast<unsigned>(value.low), static_cast<unsigned>(value.low >> 32),
                               static_cast<unsigned>(value.high), static_cast<unsigned>(value.high >> 32)};
    AL_UNROLL for (int i = 0; i < 4; ++i) store_four(reinterpret_cast<unsigned char*>(to) + 4 * i, words[i]);
    return;
  }
  AL_UNROLL for (int i = 0; i < kLength; ++i) {
    if (i < left) to[i] = packed.elements[i];
  }
}

// What a lane has of a unit.
template <class Stored>
AL_DEVICE LanePacks load_unit_packs(const PackedVector<Stored>& vector, long long unit, int lane) {
  LanePacks packs = {{0, 0}, {0, 0}};
  packs.first = load_pack(vector, unit * kUnitPacks + first_pack(lane));
  if (!carries_number(lane)) packs.second = load_pack(vector, unit * kUnitPacks + second_pack(lane));
  return packs;
}
template <class Stored>
AL_DEVICE void store_unit_packs(Stored* vector, long long count, long long unit, int lane, const LanePacks& packs) {
  store_pack(vector, count, unit * kUnitPacks + first_pack(lane), packs.first);
  if (!carries_number(lane)) store_pack(vector, count, unit * kUnitPacks + second_pack(lane), packs.second);
}

// This rank's part is multiplied where that is asked for, and narrowed as what the others have sent.
template <class Number>
AL_DEVICE Halves scaled_pack(Halves pack, double factor) {
  if constexpr (requires(typename Number::Computed value) { Number::scale(value, 1.0); }) {
    auto elements = __builtin_bit_cast(Pack<typename Number::Stored>, pack);
    AL_UNROLL for (int i = 0; i < Pack<typename Number::Stored>::kLength; ++i)
      elements.elements[i] = Number::narrow(Number::scale(Number::widen(elements.elements[i]), factor));
    return __builtin_bit_cast(Halves, elements);
  }
  return pack;
}

AL_DEVICE void push_unit(unsigned long long* words, unsigned long long number, const LanePacks (&packs)[AL_LANES]) {
  AL_WARP_SYNCHRONIZE();  // a line is stored in one instruction
  for (int i = 0; i < AL_LANES; ++i) {
    const int lane = AL_LANE(i);
    const LanePacks& own = packs[i];
    const bool numbered = carries_number(lane);
    store_halves(words + lane * 2, own.first.low, numbered ? number : own.first.high);
    store_halves(words + kRowWords + lane * 2, numbered ? own.first.high : own.second.low,
                 numbered ? number : own.second.high);
  }
}
// In place of a round's first unit where there is no data for one.
AL_DEVICE void push_number(unsigned long long* words, unsigned long long number) {
  AL_WARP_SYNCHRONIZE();
  for (int i = 0; i < AL_LANES; ++i) {
    const int lane = AL_LANE(i);
    if (lane < 8) store_halves(words + lane * 2, 0, carries_number(lane) ? number : 0);
  }
}

// Waits until the first so many lines of a round are there; false when it is given up instead.
AL_DEVICE bool await_lines(const unsigned long long* words, int lines, unsigned long long number, const unsigned* aborted) {
  AL_WARP_SYNCHRONIZE();
  for (int polls = 1;; ++polls) {
    bool here = true;
    for (int i = 0; i < AL_LANES; ++i) {
      const int line = AL_LANE(i);
      if (line < lines) here &= load_halves(words + line * 16 + 14).high == number;
    }
    if (AL_WARP_ALL(here)) return true;
    if (polls % 1024 == 0 && !AL_WARP_ALL(!is_set(aborted))) return false;
    AL_PAUSE();
  }
}
// How many lines of a round a rank has for another, of `units` in all.
AL_DEVICE int lines_of(long long round, int warp, int warps, long long units) {
  int lines = 1;  // with nothing but the number
  AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
    if (unit_of(round, place, warp, warps) < units) lines = (place + 1) * kLinesOfUnit;
  }
  return lines;
}
// A unit that has come: not out of the loads that have seen the number, for the data may have been older there.
AL_DEVICE LanePacks take_unit(const unsigned long long* words, int lane) {
  const Halves first = load_halves(words + lane * 2), second = load_halves(words + kRowWords + lane * 2);
  if (carries_number(lane)) return {{first.low, second.low}, {0, 0}};
  return {first, second};
}

// The units of a round, to one rank: their loads are under way together, and beside that of whether this rank has given up, in
// which case it pushes nothing. `scaled`: they are multiplied.
template <class Number>
AL_DEVICE void push_units(const LinePlaces& places, int peer, int warp, int warps, long long round,
                          const PackedVector<typename Number::Stored>& vector, bool scaled, double factor, bool here) {
  const unsigned long long number = number_of(places, peer, warp, round);
  const long long units = units_in(packs_of<typename Number::Stored>(vector.count));
  unsigned long long* const words = places.theirs[peer] + units_at(warp, number);
  if (unit_of(round, 0, warp, warps) >= units) {
    if (here) push_number(words, number);
    return;
  }
  LanePacks packs[kUnitsOfRound][AL_LANES];
  AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
    for (int i = 0; i < AL_LANES; ++i)
      packs[place][i] = load_unit_packs(vector, unit_of(round, place, warp, warps), AL_LANE(i));
  }
  AL_UNROLL for (int place = 0; here && place < kUnitsOfRound; ++place) {
    if (unit_of(round, place, warp, warps) >= units) break;
    for (int i = 0; scaled && i < AL_LANES; ++i)
      packs[place][i] = {scaled_pack<Number>(packs[place][i].first, factor),
                         scaled_pack<Number>(packs[place][i].second, factor)};
    push_unit(words + place * kUnitWords, number, packs[place]);
  }
}

// Whether a warp of this rank has given up, in this call or before: stands where the rank would count rounds with itself.
AL_DEVICE bool has_given_up(const LinePlaces& places) { return load_word(&number_at(places, places.rank, 0)) != 0; }

// After all rounds with the ranks first to behind - 1. `here`: nothing was given up.
AL_DEVICE void count_rounds(const LinePlaces& places, int first, int behind, int warp, long long rounds, bool here) {
  AL_WARP_SYNCHRONIZE();  // every lane has read the numbers
  for (int i = 0; i < AL_LANES; ++i) {
    const int peer = first + AL_LANE(i);
    if (peer < behind && peer != places.rank) number_at(places, peer, warp) += static_cast<unsigned long long>(rounds);
    if (!here && AL_LANE(i) == 0) store_word(&number_at(places, places.rank, 0), 1, 0);
  }
}

// A pack of elements that look like no result.
AL_DEVICE LanePacks poisoned_packs(unsigned long long pattern) { return {{pattern, pattern}, {pattern, pattern}}; }

template <class Number, class Operator>
AL_DEVICE void add_pack(typename Number::Computed (&sum)[Pack<typename Number::Stored>::kLength], Halves pack, bool first) {
  const auto elements = __builtin_bit_cast(Pack<typename Number::Stored>, pack);
  AL_UNROLL for (int i = 0; i < Pack<typename Number::Stored>::kLength; ++i) {
    const auto value = Number::widen(elements.elements[i]);
    sum[i] = first ? value : Operator::template apply<Number>(sum[i], value);
  }
}
template <class Number, bool kMean>
AL_DEVICE Halves pack_of(typename Number::Computed (&sum)[Pack<typename Number::Stored>::kLength], int number) {
  Pack<typename Number::Stored> made;
  AL_UNROLL for (int i = 0; i < Pack<typename Number::Stored>::kLength; ++i) {
    if constexpr (kMean) sum[i] = Number::mean(sum[i], number);
    made.elements[i] = Number::narrow(sum[i]);
  }
  return __builtin_bit_cast(Halves, made);
}

// A unit of what this rank wants, of everybody in the order of the ranks; it has come. In place, too: a lane writes what it has
// read itself.
template <class Number, class Operator, bool kMean>
AL_DEVICE void fold_unit(const LineFold& job, int warp, long long round, int place, long long unit) {
  using Stored = typename Number::Stored;
  using Computed = typename Number::Computed;
  constexpr int kLength = Pack<Stored>::kLength;
  const LinePlaces& places = job.places;
  const long long count = job.counts[places.rank];
  const PackedVector<Stored> own = {static_cast<const Stored*>(job.input) + job.begins[places.rank], count};
  Computed first[AL_LANES][kLength]{}, second[AL_LANES][kLength]{};
  for (int rank = 0; rank < places.number; ++rank) {
    const unsigned long long* const words =
        rank == places.rank ? nullptr
                            : places.mine[rank] + units_at(warp, number_of(places, rank, warp, round)) + place * kUnitWords;
    for (int i = 0; i < AL_LANES; ++i) {
      const int lane = AL_LANE(i);
      LanePacks part = words ? take_unit(words, lane) : load_unit_packs(own, unit, lane);
      if (!words && job.scaled)
        part = {scaled_pack<Number>(part.first, job.factor), scaled_pack<Number>(part.second, job.factor)};
      add_pack<Number, Operator>(first[i], part.first, rank == 0);
      add_pack<Number, Operator>(second[i], part.second, rank == 0);
    }
  }
  for (int i = 0; i < AL_LANES; ++i) {
    const LanePacks result = {pack_of<Number, kMean>(first[i], places.number), pack_of<Number, kMean>(second[i], places.number)};
    store_unit_packs(static_cast<Stored*>(job.output), count, unit, AL_LANE(i), result);
  }
}

// A reduction in which every rank reduces of everybody what it wants for itself: a block of its own, or all. By one warp.
template <class Number, class Operator, bool kMean>
AL_DEVICE void fold_lines(const LineFold& job, int warp, int warps) {
  using Stored = typename Number::Stored;
  const LinePlaces& places = job.places;
  const long long rounds = rounds_for(units_in(packs_of<Stored>(job.longest)), warps);
  const long long units = units_in(packs_of<Stored>(job.counts[places.rank]));
  bool here = !has_given_up(places);
  const auto push = [&](long long round) {
    for (int turn = 1; round < rounds && turn < places.number; ++turn) {
      const int rank = (places.rank + turn) % places.number;  // not everybody to the same one first
      const PackedVector<Stored> vector = {static_cast<const Stored*>(job.input) + job.begins[rank], job.counts[rank]};
      push_units<Number>(places, rank, warp, warps, round, vector, job.scaled, job.factor, here);
    }
  };
  for (long long round = 0; round < kAhead; ++round) push(round);
  for (long long round = 0; round < rounds; ++round) {
    push(round + kAhead);
    const int lines = lines_of(round, warp, warps, units);
    for (int rank = 0; here && rank < places.number; ++rank) {
      if (rank == places.rank) continue;
      const unsigned long long number = number_of(places, rank, warp, round);
      here = await_lines(places.mine[rank] + units_at(warp, number), lines, number, places.aborted);
    }
    for (int place = 0; place < kUnitsOfRound; ++place) {
      const long long unit = unit_of(round, place, warp, warps);
      if (unit >= units) break;
      if (here) {
        fold_unit<Number, Operator, kMean>(job, warp, round, place, unit);
      } else {
        for (int i = 0; i < AL_LANES; ++i)
          store_unit_packs(static_cast<Stored*>(job.output), job.counts[places.rank], unit, AL_LANE(i),
                           poisoned_packs(job.poison));
      }
    }
  }
  count_rounds(places, 0, places.number, warp, rounds, here);
}

// Blocks between this rank and another one. By one warp.
AL_DEVICE void mail_lines(const LineMail& job, int peer, int warp, int warps) {
  using Byte = Plain<unsigned char>;
  const LinePlaces& places = job.places;
  const PackedVector<unsigned char> vector = {static_cast<const unsigned char*>(job.input[peer]), job.sent[peer]};
  auto* const output = static_cast<unsigned char*>(job.output[peer]);
  const long long taken = job.taken[peer], units = units_in(packs_of<unsigned char>(taken));
  const long long rounds = rounds_for(units_in(packs_of<unsigned char>(taken < vector.count ? vector.count : taken)), warps);
  bool here = !has_given_up(places);
  const auto push = [&](long long round) {
    if (round < rounds) push_units<Byte>(places, peer, warp, warps, round, vector, false, 1.0, here);
  };
  for (long long round = 0; round < kAhead; ++round) push(round);
  for (long long round = 0; round < rounds; ++round) {
    push(round + kAhead);
    const unsigned long long number = number_of(places, peer, warp, round);
    const unsigned long long* const words = places.mine[peer] + units_at(warp, number);
    here = here && await_lines(words, lines_of(round, warp, warps, units), number, places.aborted);
    LanePacks packs[kUnitsOfRound][AL_LANES];  // whose loads are under way together
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      if (unit_of(round, place, warp, warps) >= units) break;
      for (int i = 0; i < AL_LANES; ++i)
        packs[place][i] = here ? take_unit(words + place * kUnitWords, AL_LANE(i)) : poisoned_packs(job.poison[peer]);
    }
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      const long long unit = unit_of(round, place, warp, warps);
      if (unit >= units) break;
      for (int i = 0; i < AL_LANES; ++i) store_unit_packs(output, taken, unit, AL_LANE(i), packs[place][i]);
    }
  }
  count_rounds(places, peer, peer + 1, warp, rounds, here);
}
// What a rank has for itself.
AL_DEVICE void keep_lines(const LineMail& job, int warp, int warps) {
  const int rank = job.places.rank;
  const PackedVector<unsigned char> vector = {static_cast<const unsigned char*>(job.input[rank]), job.sent[rank]};
  for (long long unit = warp; unit < units_in(packs_of<unsigned char>(vector.count)); unit += warps) {
    for (int i = 0; i < AL_LANES; ++i)
      store_unit_packs(static_cast<unsigned char*>(job.output[rank]), vector.count, unit, AL_LANE(i),
                       load_unit_packs(vector, unit, AL_LANE(i)));
  }
}

#ifdef __CUDACC__
// The next kernel comes when no warp of the block waits any more.
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_line_fold(const LineFold& job) {
  fold_lines<Number, Operator, kMean>(job, static_cast<int>(blockIdx.x * kWarpsOfBlock + threadIdx.x / 32),
                                      static_cast<int>(gridDim.x * kWarpsOfBlock));
  AL_SYNCHRONIZE();
  AL_LET_THE_NEXT_COME();
}
// A row of blocks for each rank.
AL_DEVICE void run_line_mail(const LineMail& job) {
  const int peer = static_cast<int>(blockIdx.y), blocks = job.blocks[peer];
  const int warp = static_cast<int>(blockIdx.x * kWarpsOfBlock + threadIdx.x / 32), warps = blocks * kWarpsOfBlock;
  if (static_cast<int>(blockIdx.x) < blocks)
    peer == job.places.rank ? keep_lines(job, warp, warps) : mail_lines(job, peer, warp, warps);
  AL_SYNCHRONIZE();
  AL_LET_THE_NEXT_COME();
}
#endif

}  // namespace altorch::kernels
