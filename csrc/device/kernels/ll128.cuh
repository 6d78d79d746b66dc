// SPDX-License-Identifier: BSD-3-Clause
// The LL128 protocol, as in NCCL. A warp pushes lines of 128 bytes: 120 bytes of data, then 8 bytes
// with the number of the round. Between linked GPUs (CudaDevice::links), a line that a warp stores
// in one instruction becomes visible in the order of its addresses. So a reader that sees the
// number may load the data: the protocol needs no flag and no fence. No hardware documentation
// promises this; NCCL relies on it, too. Include after exchange.cuh.
//
// Each warp has slots of its own, and exchanges rounds with the warp of the same index on other
// ranks: it never waits for a thread block. It has four slots with each other rank, used in turn,
// and pushes one round ahead of the round that it reads. In each round it pushes at least one line
// to each rank, and reads one from each rank. So a warp that has read round n knows that the other
// ranks have read round n - 2, and may reuse that round's slot for round n + 2.
//
// Abort is sticky: after it a rank must not push in later calls, because its data would be
// incomplete.
//
// Few warps run, and each runs once through its rounds, so each instruction between two of its
// loads costs time. A warp computes the addresses of its peer once (Ll128Peer), and aligned vectors
// (WholePacks) take the shortest way.

// A warp has 32 lanes, one per thread. Host tests run all of them in one thread. AL_APART: rare
// code, not inlined, so that it does not lengthen the code around it.
#ifdef __CUDACC__
#define AL_LANES 1
#define AL_LANE(i) (threadIdx.x % 32)
#define AL_WARP_ALL(condition) __all_sync(0xFFFFFFFFu, condition)
#define AL_OF_LANE(values, lane) __shfl_sync(0xFFFFFFFFu, (values)[0], lane)
#define AL_WARP_SYNCHRONIZE() __syncwarp()
#define AL_APART __device__ __noinline__
#else
#define AL_LANES 32
#define AL_LANE(i) (i)
#define AL_WARP_ALL(condition) (condition)
#define AL_OF_LANE(values, lane) (values)[lane]
#define AL_WARP_SYNCHRONIZE()
#define AL_APART inline
#endif

namespace altorch::kernels {

// How many rounds a warp pushes ahead. Three make 16 MiB between two H100s slower: 71 us, not 64
// (docs/benchmarks.md).
constexpr int kAhead = 1;
// A unit is 60 packs p[i] of 16 bytes, in two rows of four lines. Each lane of a warp stores 16
// bytes in each row. Every eighth lane carries the number (#) at the end of its lines, and has one
// pack, in two halves. Every other lane has two packs.
//
//   lane      0      1    ...    6          7          8    ...       31
//   row 0   p[0]   p[1]   ...  p[6]   p[56].low  #   p[7]   ...  p[59].low  #
//   row 1   p[28]  p[29]  ...  p[34]  p[56].high #   p[35]  ...  p[59].high #
constexpr int kUnitPacks = 60, kUnitWords = 128, kLinesOfUnit = 8, kRowWords = 64, kUnitsOfRound = 2, kSlots = 4,
              kWarpsOfBlock = Ll128Slots::kWarpsOfBlock, kRowPacks = 28;
constexpr i64 kRoundWords = kUnitsOfRound * kUnitWords;
static_assert(kUnitPacks * 16 == Ll128Slots::kUnitBytes);
static_assert(kSlots * kRoundWords * 8 == Ll128Slots::kBytesOfWarp);

struct alignas(16) Halves {
  u64 low, high;
};
template <class Pack>
struct OfLane {
  Pack first, second;
};
using LanePacks = OfLane<Halves>;
using UnitsOfRound = LanePacks[kUnitsOfRound][AL_LANES];
AL_DEVICE bool carries_number(int lane) { return lane % 8 == 7; }
AL_DEVICE int first_pack(int lane) { return carries_number(lane) ? 2 * kRowPacks + lane / 8 : lane - lane / 8; }
// A lane without a number has its second pack kRowPacks later.

AL_DEVICE void store_halves(u64* at, u64 low, u64 high) {
#ifdef __CUDACC__
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(low), "l"(high) : "memory");
#else  // in the order of the lanes, the number last
  __atomic_store_n(at, low, __ATOMIC_RELAXED);
  __atomic_store_n(at + 1, high, __ATOMIC_RELEASE);
#endif
}
AL_DEVICE Halves load_halves(const u64* at) {
  Halves found;
#ifdef __CUDACC__
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(found.low), "=l"(found.high) : "l"(at) : "memory");
#else  // the other way round
  found.high = __atomic_load_n(at + 1, __ATOMIC_ACQUIRE);
  found.low = __atomic_load_n(at, __ATOMIC_RELAXED);
#endif
  return found;
}

// A warp: its index among the warps that divide the data between the same ranks, and the number of
// these warps.
struct Warp {
  int index, number;
};
#ifdef __CUDACC__
// This warp's index in its row of the grid, for any block size.
AL_DEVICE int own_warp() { return static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32); }
#endif
AL_DEVICE int unit_of(const Warp& warp, int round, int place) {
  return (round * kUnitsOfRound + place) * warp.number + warp.index;
}
AL_DEVICE int units_in(i64 packs) { return static_cast<int>((packs + kUnitPacks - 1) / kUnitPacks); }
AL_DEVICE int rounds_for(int units, const Warp& warp) {
  const int each = warp.number * kUnitsOfRound;
  return units <= each ? 1 : (units + each - 1) / each;
}

AL_DEVICE u64& number_at(const Ll128Slots& slots, int peer, int warp) {
  return slots.numbers[static_cast<i64>(peer) * slots.warps + warp];
}
// A warp's state with one other rank: its slots there and here, and the number of the call's first
// round.
struct Ll128Peer {
  u64* theirs;
  const u64* mine;
  u64 number;
};
AL_DEVICE Ll128Peer ll128_peer(const Ll128Slots& slots, int peer, const Warp& warp) {
  const i64 begin = warp.index * kSlots * kRoundWords;
  return {slots.theirs[peer] + begin, slots.mine[peer] + begin, number_at(slots, peer, warp.index) + 1};
}
AL_DEVICE i64 slot_of(u64 number) { return static_cast<i64>(number % kSlots) * kRoundWords; }

AL_DEVICE i64 packs_in(i64 bytes) { return (bytes + 15) / 16; }

// Loads a pack of up to `bytes` valid bytes, at any alignment.
AL_APART Halves load_pack(const unsigned char* from, i64 bytes) {
  Halves loaded = {0, 0};
#ifdef __CUDACC__
  const u64 at = reinterpret_cast<u64>(from);
  if (bytes >= 16 && at % 16 == 0) return *reinterpret_cast<const Halves*>(from);
  if (bytes >= 32) {  // out of the two aligned packs in which it lies; the vector goes on behind them
    const auto* const aligned = reinterpret_cast<const Halves*>(from - at % 16);
    const Halves here = aligned[0], next = aligned[1];
    const int shift = static_cast<int>(at % 16) * 8;
    const u64 words[3] = {shift < 64 ? here.low : here.high, shift < 64 ? here.high : next.low,
                          shift < 64 ? next.low : next.high};
    const int left = shift % 64;
    loaded.low = words[0] >> left | (left ? words[1] << (64 - left) : 0);
    loaded.high = words[1] >> left | (left ? words[2] << (64 - left) : 0);
    return loaded;
  }
#endif
  AL_UNROLL for (int i = 0; i < 16; ++i)
    (i < 8 ? loaded.low : loaded.high) |= i < bytes ? static_cast<u64>(from[i]) << 8 * (i % 8) : 0;
  return loaded;
}
template <class Unit>
AL_DEVICE void store_units(unsigned char* to, Halves pack) {
  constexpr int kInHalf = 8 / sizeof(Unit);
  AL_UNROLL for (int i = 0; i < 2 * kInHalf; ++i) {
    const Unit unit = static_cast<Unit>((i < kInHalf ? pack.low : pack.high) >> 8 * sizeof(Unit) * (i % kInHalf));
#ifdef __CUDACC__
    reinterpret_cast<Unit*>(to)[i] = unit;
#else
    __builtin_memcpy(to + i * sizeof(Unit), &unit, sizeof unit);
#endif
  }
}
AL_APART void store_pack(unsigned char* to, i64 bytes, Halves pack) {
  const u64 at = reinterpret_cast<u64>(to);
  if (bytes < 16) {
    AL_UNROLL for (int i = 0; i < 16; ++i) {
      if (i < bytes) to[i] = static_cast<unsigned char>((i < 8 ? pack.low : pack.high) >> 8 * (i % 8));
    }
  } else if (at % 8 == 0) {
    store_units<u64>(to, pack);
  } else if (at % 4 == 0) {
    store_units<unsigned>(to, pack);
  } else if (at % 2 == 0) {
    store_units<unsigned short>(to, pack);
  } else {
    store_units<unsigned char>(to, pack);
  }
}
// A vector at any alignment.
struct AnyPacks {
  static constexpr bool kEndsApart = false;
  const unsigned char* bytes;
  i64 count;
  AL_DEVICE static AnyPacks of(const void* data, i64 bytes) {
    return {static_cast<const unsigned char*>(data), bytes};
  }
  AL_DEVICE static i64 in_rounds(i64 bytes) { return bytes; }
  AL_DEVICE int units() const { return units_in(packs_in(count)); }
  AL_DEVICE LanePacks load(int unit, int lane) const {
    const i64 at = (static_cast<i64>(unit) * kUnitPacks + first_pack(lane)) * 16, second = at + kRowPacks * 16;
    LanePacks loaded = {{0, 0}, {0, 0}};
    if (at < count) loaded.first = load_pack(bytes + at, count - at);
    if (!carries_number(lane) && second < count) loaded.second = load_pack(bytes + second, count - second);
    return loaded;
  }
  AL_DEVICE static void store(void* data, i64 bytes, int unit, int lane, const LanePacks& given) {
    const i64 at = (static_cast<i64>(unit) * kUnitPacks + first_pack(lane)) * 16, second = at + kRowPacks * 16;
    auto* const to = static_cast<unsigned char*>(data);
    if (at < bytes) store_pack(to + at, bytes - at, given.first);
    if (!carries_number(lane) && second < bytes) store_pack(to + second, bytes - second, given.second);
  }
  AL_DEVICE static void store_all(void* data, i64 bytes, int unit, int lane, const LanePacks& given) {
    store(data, bytes, unit, lane, given);
  }
  // What an aborted call stores in place of data.
  AL_DEVICE static void store_poison(void* data, i64 bytes, int unit, int lane, u64 pattern) {
    store(data, bytes, unit, lane, {{pattern, pattern}, {pattern, pattern}});
  }
};

// A vector that is aligned to 16 bytes. Memory after its end may hold anything.
struct WholePacks {
  static constexpr bool kEndsApart = true;
  const Halves* packs;
  int number, left;  // left: bytes of the last one
  AL_DEVICE static bool hold(const void* data, i64 bytes) {
    return reinterpret_cast<u64>(data) % 16 == 0 && bytes < 1LL << 34;
  }
  AL_DEVICE static WholePacks of(const void* data, i64 bytes) {
    return {static_cast<const Halves*>(data), static_cast<int>(packs_in(bytes)), static_cast<int>((bytes + 15) % 16 + 1)};
  }
  // What the rounds store: everything but an incomplete last pack, see store_end().
  AL_DEVICE static i64 in_rounds(i64 bytes) { return bytes / 16 * 16; }
  AL_DEVICE int units() const { return units_in(number); }
  // A lane's packs of a unit.
  AL_DEVICE LanePacks load(int unit, int lane) const {
#ifdef __CUDACC__
    const int at = unit * kUnitPacks + first_pack(lane);
    LanePacks loaded = {{0, 0}, {0, 0}};
    if (at < number) loaded.first = packs[at];
    if (!carries_number(lane) && at + kRowPacks < number) loaded.second = packs[at + kRowPacks];
    return loaded;
#else  // where tests watch every byte
    return AnyPacks::of(packs, number * 16LL - 16 + left).load(unit, lane);
#endif
  }
  AL_DEVICE static void store_all(void* data, i64 bytes, int unit, int lane, const LanePacks& given);
  AL_DEVICE static void store_poison(void* data, i64 bytes, int unit, int lane, u64 pattern) {
    AnyPacks::store_poison(data, bytes, unit, lane, pattern);
  }
  // Stores all but an incomplete last pack: see store_end().
  AL_DEVICE static void store(void* data, i64 bytes, int unit, int lane, const LanePacks& given) {
    const int at = unit * kUnitPacks + first_pack(lane), number = static_cast<int>(bytes / 16);
    if (at < number) static_cast<Halves*>(data)[at] = given.first;
    if (!carries_number(lane) && at + kRowPacks < number) static_cast<Halves*>(data)[at + kRowPacks] = given.second;
  }
};
AL_DEVICE void WholePacks::store_all(void* data, i64 bytes, int unit, int lane, const LanePacks& given) {
  store(data, bytes, unit, lane, given);
  const int last = static_cast<int>(bytes / 16), within = last - unit * kUnitPacks;
  if (bytes % 16 == 0 || within < 0 || within >= kUnitPacks) return;
  const bool is_second = !carries_number(lane) && first_pack(lane) + kRowPacks == within;
  if (first_pack(lane) != within && !is_second) return;
  store_pack(static_cast<unsigned char*>(data) + last * 16LL, bytes % 16, is_second ? given.second : given.first);
}
// The incomplete last pack is stored separately, so that the loop has no test for it. Returns the
// index, among this warp's units, of the unit that has this pack; -kUnitsOfRound if all packs are
// complete, or another warp has that unit.
AL_DEVICE int turn_of_end(i64 bytes, const Warp& warp) {
  const int unit = static_cast<int>(bytes / 16) / kUnitPacks;
  return bytes % 16 == 0 || unit % warp.number != warp.index ? -kUnitsOfRound : unit / warp.number;
}
// Stored by the lane that has it. result(place, lane): the packs of its unit.
template <class Result>
AL_DEVICE void store_end(void* data, i64 bytes, int turn, const Result& result) {
  const int left = static_cast<int>(bytes % 16), last = static_cast<int>(bytes / 16), within = last % kUnitPacks;
  for (int i = 0; i < AL_LANES; ++i) {
    const int lane = AL_LANE(i);
    const bool is_second = !carries_number(lane) && first_pack(lane) + kRowPacks == within;
    if (first_pack(lane) != within && !is_second) continue;
    const LanePacks packs = result(turn % kUnitsOfRound, lane);
    store_pack(static_cast<unsigned char*>(data) + last * 16LL, left, is_second ? packs.second : packs.first);
  }
}

// Loads the lanes' packs of a round's units, all loads in flight at once.
template <class Packs>
AL_DEVICE void load_units(const Packs& vector, const Warp& warp, int round, UnitsOfRound& units) {
  if constexpr (requires { vector.load_round(warp, round, units); }) return vector.load_round(warp, round, units);
  AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
    for (int i = 0; i < AL_LANES; ++i) units[place][i] = vector.load(unit_of(warp, round, place), AL_LANE(i));
  }
}

// Pushes the lines of a unit, or a first line with only the number if there is no unit.
AL_DEVICE void push_lines(u64* words, u64 number, const LanePacks (&packs)[AL_LANES],
                          int lines) {
  AL_WARP_SYNCHRONIZE();  // a line is stored in one instruction
  for (int i = 0; i < AL_LANES; ++i) {
    const int lane = AL_LANE(i);
    const LanePacks& own = packs[i];
    const bool numbered = carries_number(lane);
    if (lane / 8 < lines) store_halves(words + lane * 2, own.first.low, numbered ? number : own.first.high);
    if (lines == kLinesOfUnit)
      store_halves(words + kRowWords + lane * 2, numbered ? own.first.high : own.second.low,
                   numbered ? number : own.second.high);
  }
}
// Pushes the units of a round to one rank. `here`: this rank has not aborted, first as this lane
// sees it, then agreed among all lanes. An aborted rank pushes nothing. The load of the abort flag
// overlaps with the loads of data. `packs`: what is pushed; undefined where the round has no unit.
template <class Packs>
AL_DEVICE void push_units(const Ll128Peer& peer, const Packs& vector, const Warp& warp, int round, bool& here,
                          UnitsOfRound& packs) {
  const u64 number = peer.number + static_cast<u64>(round);
  u64* const words = peer.theirs + slot_of(number);
  const int units = vector.units();
  if (unit_of(warp, round, 0) >= units) {
    here = AL_WARP_ALL(here);
    const LanePacks nothing[AL_LANES] = {};
    if (here) push_lines(words, number, nothing, 1);
    return;
  }
  load_units(vector, warp, round, packs);
  here = AL_WARP_ALL(here);
  AL_UNROLL for (int place = 0; here && place < kUnitsOfRound; ++place) {
    if (unit_of(warp, round, place) >= units) break;
    push_lines(words + place * kUnitWords, number, packs[place], kLinesOfUnit);
  }
}

template <class Packs>
AL_DEVICE void push_units(const Ll128Peer& peer, const Packs& vector, const Warp& warp, int round, bool& here) {
  UnitsOfRound packs;
  push_units(peer, vector, warp, round, here, packs);
}

// Waits for a round of a rank that sends `units` in total. Returns false if the call was aborted.
AL_DEVICE bool await_units(const Ll128Peer& peer, const Warp& warp, int round, int units, const unsigned* aborted) {
  const u64 number = peer.number + static_cast<u64>(round);
  const u64* const words = peer.mine + slot_of(number);
  int lines = 1;  // with nothing but the number
  AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
    if (unit_of(warp, round, place) < units) lines = (place + 1) * kLinesOfUnit;
  }
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
// Loads a unit that has arrived. It loads again, since the loads that saw the number may hold older
// data.
AL_DEVICE LanePacks taken_unit(const u64* words, int lane) {
  const Halves first = load_halves(words + lane * 2), second = load_halves(words + kRowWords + lane * 2);
  if (carries_number(lane)) return {{first.low, second.low}, {0, 0}};
  return {first, second};
}
AL_DEVICE LanePacks take_unit(const Ll128Peer& peer, int round, int place, int lane) {
  return taken_unit(peer.mine + slot_of(peer.number + static_cast<u64>(round)) + place * kUnitWords, lane);
}
// What an aborted call stores in place of data.
AL_DEVICE LanePacks poisoned_packs(u64 pattern) { return {{pattern, pattern}, {pattern, pattern}}; }

// Whether a warp of this rank has aborted, in this call or before. It is kept where the rank would
// count rounds with itself.
AL_DEVICE bool has_aborted(const Ll128Slots& slots) { return load_word(&number_at(slots, slots.rank, 0)) != 0; }

// Called after all rounds with the ranks first to behind - 1. `here`: not aborted.
AL_DEVICE void count_rounds(const Ll128Slots& slots, int first, int behind, int warp, int rounds, bool here) {
  AL_WARP_SYNCHRONIZE();  // every lane has read the numbers
  for (int i = 0; i < AL_LANES; ++i) {
    const int peer = first + AL_LANE(i);
    if (peer < behind && peer != slots.rank) number_at(slots, peer, warp) += static_cast<u64>(rounds);
    if (!here && AL_LANE(i) == 0) store_word(&number_at(slots, slots.rank, 0), 1, 0);
  }
}

}  // namespace altorch::kernels
