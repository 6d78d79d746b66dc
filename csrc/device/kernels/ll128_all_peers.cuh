// SPDX-License-Identifier: BSD-3-Clause
// One LL128 round with all other ranks at once: a warp issues its loads for several ranks together,
// and polls several ranks together. One unit for each rank. Include after ll128.cuh.

namespace altorch::kernels {

// How many ranks a warp loads units for at once; and how many ranks its lanes poll at once, with
// eight lines each.
constexpr int kTogether = 3, kPolled = 4;

// The slots of a warp with all other ranks: where they begin, and the number of the next round with
// each rank (one per lane).
struct WithAll {
  const Ll128Slots& slots;
  int begin;
  u64 next[AL_LANES];

  AL_DEVICE WithAll(const Ll128Slots& slots, const Warp& warp)
      : slots(slots), begin(warp.index * kSlots * static_cast<int>(kRoundWords)) {
    for (int i = 0; i < AL_LANES; ++i) {
      const int rank = AL_LANE(i);
      next[i] = rank < slots.number && rank != slots.rank ? number_at(slots, rank, warp.index) + 1 : 0;
    }
  }
  AL_DEVICE u64 number(int rank, int turn) const {
    return AL_OF_LANE(next, rank) + static_cast<unsigned>(turn);
  }
  AL_DEVICE int place(u64 number) const {
    return begin + static_cast<int>(static_cast<unsigned>(number) % kSlots) * static_cast<int>(kRoundWords);
  }
  // The other ranks, beginning with the next higher one, so that ranks do not all push to the same
  // rank first. After the last one comes this rank itself, which avoids branches.
  AL_DEVICE int other(int turn) const {
    const int rank = slots.rank + (turn < slots.number ? turn : 0);
    return rank < slots.number ? rank : rank - slots.number;
  }
};

// Pushes a unit to each other rank, or only a line with the number if there is no unit for it.
// `here`: as in push_units(). holds(rank): whether there is a unit; load(rank, lane): a lane's part
// of it.
template <class Holds, class Load>
AL_DEVICE void push_to_all(const WithAll& all, int turn, bool& here, const Holds& holds, const Load& load) {
  for (int first = 1; first < all.slots.number; first += kTogether) {
    LanePacks packs[kTogether][AL_LANES];
    AL_UNROLL for (int t = 0; t < kTogether; ++t) {
      const int rank = all.other(first + t);
      for (int i = 0; i < AL_LANES; ++i) packs[t][i] = load(rank, AL_LANE(i));
    }
    here = AL_WARP_ALL(here);
    AL_UNROLL for (int t = 0; t < kTogether; ++t) {
      const int rank = all.other(first + t);
      const u64 number = all.number(rank, turn);
      const int lines = !here || rank == all.slots.rank ? 0 : holds(rank) ? kLinesOfUnit : 1;
      u64* const words = all.slots.theirs[lines > 0 ? rank : all.other(1)];
      push_lines(words + all.place(number), number, packs[t], lines);
    }
  }
}

// Waits for a round of all other ranks: a unit from each rank for which holds(rank) is true, and
// from the others a line with the number. Returns false if the call was aborted.
template <class Holds>
AL_DEVICE bool await_all(const WithAll& all, int turn, const Holds& holds) {
  const Ll128Slots& slots = all.slots;
  for (int first = 0; first < slots.number; first += kPolled) {
    const u64* line[AL_LANES];
    u64 number[AL_LANES];
    for (int i = 0; i < AL_LANES; ++i) {
      const int rank = first + AL_LANE(i) / kLinesOfUnit, at = AL_LANE(i) % kLinesOfUnit;
      number[i] = all.number(rank, turn);
      const bool awaits = rank < slots.number && rank != slots.rank && (at == 0 || holds(rank));
      line[i] = awaits ? slots.mine[rank] + all.place(number[i]) + at * 16 + 14 : nullptr;
    }
    AL_WARP_SYNCHRONIZE();
    for (int polls = 1;; ++polls) {
      bool here = true;
      for (int i = 0; i < AL_LANES; ++i) here &= !line[i] || load_halves(line[i]).high == number[i];
      if (AL_WARP_ALL(here)) break;
      if (polls % 1024 == 0 && !AL_WARP_ALL(!is_set(slots.aborted))) return false;
      AL_PAUSE();
    }
  }
  return true;
}

// A lane's packs of a unit that has arrived.
AL_DEVICE LanePacks take_from(const WithAll& all, int turn, int rank, int lane) {
  if (rank == all.slots.rank || rank >= all.slots.number) rank = all.other(1);  // the caller ignores these packs
  return taken_unit(all.slots.mine[rank] + all.place(all.number(rank, turn)), lane);
}

}  // namespace altorch::kernels
