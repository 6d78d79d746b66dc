// A reduction in lines, in which every rank reduces of everybody what it wants for itself: a block of its own, or all. After
// lines.cuh.

namespace altorch::kernels {

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

// What this rank has for another one, or for itself.
template <class Stored>
AL_DEVICE const Stored* part_for(const LineFold& job, int rank) {
  return static_cast<const Stored*>(job.input) + job.begins[rank];
}
template <class Stored>
AL_DEVICE long long bytes_for(const LineFold& job, int rank) {
  return job.counts[rank] * static_cast<long long>(sizeof(Stored));
}
template <class Stored>
AL_DEVICE bool is_whole(const LineFold& job) {
  bool whole = WholePacks::hold(job.output, bytes_for<Stored>(job, job.places.rank));
  for (int rank = 0; rank < job.places.number; ++rank)
    whole &= WholePacks::hold(part_for<Stored>(job, rank), bytes_for<Stored>(job, rank));
  return whole && !job.scaled;
}

// This rank's part, multiplied where that is asked for, and narrowed as what the others have sent.
template <class Number>
AL_APART Halves scaled_pack(Halves pack, double factor) {
  if constexpr (requires(typename Number::Computed value) { Number::scale(value, 1.0); }) {
    auto elements = __builtin_bit_cast(Pack<typename Number::Stored>, pack);
    AL_UNROLL for (int i = 0; i < Pack<typename Number::Stored>::kLength; ++i)
      elements.elements[i] = Number::narrow(Number::scale(Number::widen(elements.elements[i]), factor));
    return __builtin_bit_cast(Halves, elements);
  }
  return pack;
}
template <class Number>
struct ScaledPacks : AnyPacks {
  bool scaled;
  double factor;
  AL_DEVICE LanePacks load(int unit, int lane) const {
    const LanePacks loaded = AnyPacks::load(unit, lane);
    if (!scaled) return loaded;
    return {scaled_pack<Number>(loaded.first, factor), scaled_pack<Number>(loaded.second, factor)};
  }
};
// As the kernel goes through them.
template <class Number, bool kWhole>
AL_DEVICE auto packs_for(const LineFold& job, int rank) {
  using Stored = typename Number::Stored;
  if constexpr (kWhole) {
    return WholePacks::of(part_for<Stored>(job, rank), bytes_for<Stored>(job, rank));
  } else {
    return ScaledPacks<Number>{AnyPacks::of(part_for<Stored>(job, rank), bytes_for<Stored>(job, rank)), job.scaled != 0,
                               job.factor};
  }
}

template <class Number>
using Sums = typename Number::Computed[Pack<typename Number::Stored>::kLength];
template <class Number, class Operator>
AL_DEVICE void add_pack(Sums<Number>& sums, Halves pack, bool first) {
  const auto elements = __builtin_bit_cast(Pack<typename Number::Stored>, pack);
  AL_UNROLL for (int i = 0; i < Pack<typename Number::Stored>::kLength; ++i) {
    const auto value = Number::widen(elements.elements[i]);
    sums[i] = first ? value : Operator::template apply<Number>(sums[i], value);
  }
}
template <class Number, bool kMean>
AL_DEVICE Halves pack_of(Sums<Number>& sums, int number) {
  Pack<typename Number::Stored> made;
  AL_UNROLL for (int i = 0; i < Pack<typename Number::Stored>::kLength; ++i) {
    if constexpr (kMean) sums[i] = Number::mean(sums[i], number);
    made.elements[i] = Number::narrow(sums[i]);
  }
  return __builtin_bit_cast(Halves, made);
}

// A unit of what this rank wants, of everybody in the order of the ranks; it has come. In place, too: a lane writes what it has
// read itself.
template <class Number, class Operator, bool kMean, class Packs>
AL_DEVICE void fold_unit(const LineFold& job, const Packs& own, const Warp& warp, int round, int place) {
  const LinePlaces& places = job.places;
  const int unit = unit_of(warp, round, place);
  Sums<Number> first[AL_LANES]{}, second[AL_LANES]{};
  for (int rank = 0; rank < places.number; ++rank) {
    const bool is_own = rank == places.rank;
    const LinePeer peer = is_own ? LinePeer{nullptr, nullptr, 0} : line_peer(places, rank, warp);
    for (int i = 0; i < AL_LANES; ++i) {
      const LanePacks part = is_own ? own.load(unit, AL_LANE(i)) : take_unit(peer, round, place, AL_LANE(i));
      add_pack<Number, Operator>(first[i], part.first, rank == 0);
      add_pack<Number, Operator>(second[i], part.second, rank == 0);
    }
  }
  for (int i = 0; i < AL_LANES; ++i)
    Packs::store(job.output, bytes_for<typename Number::Stored>(job, places.rank), unit, AL_LANE(i),
                 {pack_of<Number, kMean>(first[i], places.number), pack_of<Number, kMean>(second[i], places.number)});
}

// By one warp, among any number of ranks.
template <class Number, class Operator, bool kMean, bool kWhole>
AL_DEVICE void fold_among_all(const LineFold& job, const Warp& warp) {
  using Stored = typename Number::Stored;
  const LinePlaces& places = job.places;
  const auto own = packs_for<Number, kWhole>(job, places.rank);
  const int rounds = rounds_for(units_in(packs_in(job.longest * static_cast<long long>(sizeof(Stored)))), warp);
  const int units = own.units();
  bool here = !has_given_up(places);
  for (int round = -kAhead; round < rounds; ++round) {
    for (int turn = 1; round + kAhead < rounds && turn < places.number; ++turn) {
      const int rank = (places.rank + turn) % places.number;  // not everybody to the same one first
      push_units(line_peer(places, rank, warp), packs_for<Number, kWhole>(job, rank), warp, round + kAhead, here);
    }
    if (round < 0) continue;
    for (int rank = 0; here && rank < places.number; ++rank) {
      if (rank == places.rank) continue;
      here = await_units(line_peer(places, rank, warp), warp, round, units, places.aborted);
    }
    for (int place = 0; place < kUnitsOfRound && unit_of(warp, round, place) < units; ++place) {
      if (here) {
        fold_unit<Number, Operator, kMean>(job, own, warp, round, place);
        continue;
      }
      for (int i = 0; i < AL_LANES; ++i)
        AnyPacks::store(job.output, bytes_for<Stored>(job, places.rank), unit_of(warp, round, place), AL_LANE(i),
                        poisoned_packs(job.poison));
    }
  }
  count_rounds(places, 0, places.number, warp.index, rounds, here);
}

// The same between two ranks, of whole packs: what a lane reduces is loaded at once, its own part while it waits for the other.
template <class Number, class Operator, bool kMean>
AL_DEVICE void fold_between_two(const LineFold& job, const Warp& warp) {
  const LinePlaces& places = job.places;
  const int rank = places.rank;
  const WholePacks given = packs_for<Number, true>(job, 1 - rank), all = packs_for<Number, true>(job, rank);
  const LinePeer peer = line_peer(places, 1 - rank, warp);
  const long long bytes = bytes_for<typename Number::Stored>(job, rank);
  const WholePacks kept = WholePacks::of(all.packs, bytes / 16 * 16);  // the end comes at the end
  const int units = all.units(), rounds = rounds_for(units < given.units() ? given.units() : units, warp);
  const int end = turn_of_end(bytes, warp);
  bool here = !has_given_up(places);
  const auto folded = [&](Halves own, Halves other) {
    Sums<Number> sums{};
    add_pack<Number, Operator>(sums, rank == 0 ? own : other, true);
    add_pack<Number, Operator>(sums, rank == 0 ? other : own, false);
    return here ? pack_of<Number, kMean>(sums, 2) : poisoned_packs(job.poison).first;
  };
  for (int round = -kAhead; round < rounds; ++round) {
    if (round + kAhead < rounds) push_units(peer, given, warp, round + kAhead, here);
    if (round < 0) continue;
    UnitsOfRound own, others;
    load_units(kept, warp, round, own);
    here = here && await_units(peer, warp, round, units, places.aborted);
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      for (int i = 0; i < AL_LANES; ++i) others[place][i] = take_unit(peer, round, place, AL_LANE(i));
    }
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      for (int i = 0; i < AL_LANES; ++i)
        WholePacks::store(job.output, bytes / 16 * 16, unit_of(warp, round, place), AL_LANE(i),
                          {folded(own[place][i].first, others[place][i].first),
                           folded(own[place][i].second, others[place][i].second)});
    }
    if (round != end / kUnitsOfRound) continue;
    store_end(job.output, bytes, end, [&](int place, int lane) -> LanePacks {
      const LanePacks mine = packs_for<Number, true>(job, rank).load(unit_of(warp, round, place), lane);
      const LanePacks other = take_unit(peer, round, place, lane);
      return {folded(mine.first, other.first), folded(mine.second, other.second)};
    });
  }
  count_rounds(places, 0, 2, warp.index, rounds, here);
}

template <class Number, class Operator, bool kMean>
AL_DEVICE void fold_lines(const LineFold& job, const Warp& warp) {
  const bool whole = is_whole<typename Number::Stored>(job);
  if (whole && job.places.number == 2) {
    fold_between_two<Number, Operator, kMean>(job, warp);
  } else if (whole && bytes_for<typename Number::Stored>(job, job.places.rank) % 16 == 0) {
    fold_among_all<Number, Operator, kMean, true>(job, warp);
  } else {
    fold_among_all<Number, Operator, kMean, false>(job, warp);
  }
}

#ifdef __CUDACC__
// The next kernel comes when no warp of the block waits any more.
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_line_fold(const LineFold& job) {
  fold_lines<Number, Operator, kMean>(job, {static_cast<int>(blockIdx.x * kWarpsOfBlock + threadIdx.x / 32),
                                            static_cast<int>(gridDim.x * kWarpsOfBlock)});
  AL_SYNCHRONIZE();
  AL_LET_THE_NEXT_COME();
}
#endif

}  // namespace altorch::kernels
