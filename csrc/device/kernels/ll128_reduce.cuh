// SPDX-License-Identifier: BSD-3-Clause
// One-shot LL128 reduction: each rank reads the parts of all ranks for what it needs (its block, or
// everything), and reduces them. Include after ll128.cuh.

namespace altorch::kernels {

// This rank's part for another rank, or for itself.
template <class Stored>
AL_DEVICE const Stored* part_for(const Ll128Reduce& job, int rank) {
  return static_cast<const Stored*>(job.input) + job.begins[rank];
}
template <class Stored>
AL_DEVICE i64 bytes_for(const Ll128Reduce& job, int rank) {
  return job.counts[rank] * static_cast<i64>(sizeof(Stored));
}
template <class Stored>
AL_DEVICE bool is_whole(const Ll128Reduce& job) {
  bool whole = WholePacks::hold(job.output, bytes_for<Stored>(job, job.slots.rank));
  for (int rank = 0; rank < job.slots.number; ++rank)
    whole &= WholePacks::hold(part_for<Stored>(job, rank), bytes_for<Stored>(job, rank));
  return whole && !job.scaled;
}

// This rank's own part, scaled if the call asks for it, and narrowed like the parts of other ranks.
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
template <class Number, class Packs>
AL_DEVICE Packs packs_for(const Ll128Reduce& job, int rank) {
  using Stored = typename Number::Stored;
  const auto* const part = part_for<Stored>(job, rank);
  const i64 bytes = bytes_for<Stored>(job, rank);
  if constexpr (Packs::kEndsApart) {
    return Packs::of(part, bytes);
  } else {
    return {AnyPacks::of(part, bytes), job.scaled != 0, job.factor};
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
// part(rank) returns that rank's pack.
template <class Number, bool kMean, class Part>
AL_DEVICE Halves pack_of(const Sums<Number>& sums, int number, const Part& part) {
  using Elements = Pack<typename Number::Stored>;
  Elements made;
  AL_UNROLL for (int i = 0; i < Elements::kLength; ++i)
    made.elements[i] = finalize<Number, kMean>(
        sums[i], number, [part, i](int rank) { return __builtin_bit_cast(Elements, part(rank)).elements[i]; });
  return __builtin_bit_cast(Halves, made);
}

// Run by one warp, between two ranks. A lane issues all its loads at once; those of its own part
// overlap with the wait.
template <class Number, class Operator, bool kMean, class Packs>
AL_DEVICE void reduce_between_two(const Ll128Reduce& job, const Warp& warp) {
  const Ll128Slots& slots = job.slots;
  const int rank = slots.rank;
  const Packs given = packs_for<Number, Packs>(job, 1 - rank), own = packs_for<Number, Packs>(job, rank);
  const Ll128Peer peer = ll128_peer(slots, 1 - rank, warp);
  const i64 bytes = bytes_for<typename Number::Stored>(job, rank), in_rounds = Packs::in_rounds(bytes);
  const int units = own.units(), rounds = rounds_for(units < given.units() ? given.units() : units, warp);
  const int end = in_rounds == bytes ? -kUnitsOfRound : turn_of_end(bytes, warp);
  bool here = !has_aborted(slots);
  const auto folded = [&](Halves mine, Halves other) {
    Sums<Number> sums{};
    add_pack<Number, Operator>(sums, rank == 0 ? mine : other, true);
    add_pack<Number, Operator>(sums, rank == 0 ? other : mine, false);
    const auto part = [rank, mine, other](int of) { return of == rank ? mine : other; };
    return here ? pack_of<Number, kMean>(sums, 2, part) : poisoned_packs(job.poison).first;
  };
  for (int round = -kAhead; round < rounds; ++round) {
    if (round + kAhead < rounds) push_units(peer, given, warp, round + kAhead, here);
    if (round < 0) continue;
    UnitsOfRound mine, others;
    load_units(own, warp, round, mine);
    here = here && await_units(peer, warp, round, units, slots.aborted);
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      for (int i = 0; i < AL_LANES; ++i) others[place][i] = take_unit(peer, round, place, AL_LANE(i));
    }
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      for (int i = 0; i < AL_LANES; ++i)
        Packs::store(job.output, in_rounds, unit_of(warp, round, place), AL_LANE(i),
                     {folded(mine[place][i].first, others[place][i].first),
                      folded(mine[place][i].second, others[place][i].second)});
    }
    if (round != end / kUnitsOfRound) continue;
    store_end(job.output, bytes, end, [&](int place, int lane) -> LanePacks {
      const LanePacks last = own.load(unit_of(warp, round, place), lane), other = take_unit(peer, round, place, lane);
      return {folded(last.first, other.first), folded(last.second, other.second)};
    });
  }
  count_rounds(slots, 0, 2, warp.index, rounds, here);
}

}  // namespace altorch::kernels
