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
  AL_DEVICE static ScaledPacks of_job(const Ll128Reduce& job, const void* part, i64 bytes) {
    return {AnyPacks::of(part, bytes), job.scaled != 0, job.factor};
  }
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
  if constexpr (requires { Packs::of_job(job, part, bytes); }) {
    return Packs::of_job(job, part, bytes);
  } else {
    return Packs::of(part, bytes);
  }
}

// Makes a pack of the result of one pack of each rank. Values in 8 bits have another
// (ll128_quantized.cuh).
template <class Number>
struct PackSum {
  using Elements = Pack<typename Number::Stored>;
  using Result = Halves;  // what is stored of a pack

  typename Number::Computed sums[Elements::kLength];

  template <class Operator>
  AL_DEVICE void add(Halves pack, bool first) {
    const auto elements = __builtin_bit_cast(Elements, pack);
    AL_UNROLL for (int i = 0; i < Elements::kLength; ++i) {
      const auto value = Number::widen(elements.elements[i]);
      sums[i] = first ? value : Operator::template apply<Number>(sums[i], value);
    }
  }
  // Of `number` ranks. part(rank) returns that rank's pack.
  template <bool kMean, class Part>
  AL_DEVICE Halves pack(int number, const Part& part) const {
    Elements made;
    AL_UNROLL for (int i = 0; i < Elements::kLength; ++i)
      made.elements[i] = finalize<Number, kMean>(
          sums[i], number, [part, i](int rank) { return __builtin_bit_cast(Elements, part(rank)).elements[i]; });
    return __builtin_bit_cast(Halves, made);
  }
  template <bool kMean, class Part>
  AL_DEVICE Result result(int number, const Part& part) const {
    return pack<kMean>(number, part);
  }
  // What an aborted call stores in place of a result.
  AL_DEVICE static Result poison(u64 pattern) { return {pattern, pattern}; }
};
// Whether a rank keeps the packs that it has pushed, as it is quicker than to load them again. Only
// where it pushes what it reduces itself.
template <class Packs>
constexpr bool kKeeps = requires { Packs::kAreKept; };
static_assert(kAhead == 1);

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
  [[maybe_unused]] const int end = in_rounds == bytes ? -kUnitsOfRound : turn_of_end(bytes, warp);
  bool here = !has_aborted(slots);
  const auto reduced = [&](Halves mine, Halves other) {
    PackSum<Number> sum{};
    sum.template add<Operator>(rank == 0 ? mine : other, true);
    sum.template add<Operator>(rank == 0 ? other : mine, false);
    const auto part = [rank, mine, other](int of) { return of == rank ? mine : other; };
    return here ? sum.template result<kMean>(2, part) : PackSum<Number>::poison(job.poison);
  };
  const auto of_lane = [&](const LanePacks& mine, const LanePacks& other) -> OfLane<typename PackSum<Number>::Result> {
    return {reduced(mine.first, other.first), reduced(mine.second, other.second)};
  };
  UnitsOfRound pushed, mine, others;
  for (int round = -kAhead; round < rounds; ++round) {
    if constexpr (kKeeps<Packs>) {
      AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place)
        for (int i = 0; i < AL_LANES; ++i) mine[place][i] = pushed[place][i];
    }
    if (round + kAhead < rounds) push_units(peer, given, warp, round + kAhead, here, pushed);
    if (round < 0) continue;
    if constexpr (!kKeeps<Packs>) load_units(own, warp, round, mine);
    here = here && await_units(peer, warp, round, units, slots.aborted);
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      for (int i = 0; i < AL_LANES; ++i) others[place][i] = take_unit(peer, round, place, AL_LANE(i));
    }
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      for (int i = 0; i < AL_LANES; ++i)
        Packs::store(job.output, in_rounds, unit_of(warp, round, place), AL_LANE(i),
                     of_lane(mine[place][i], others[place][i]));
    }
    if constexpr (Packs::kEndsApart) {
      if (round != end / kUnitsOfRound) continue;
      store_end(job.output, bytes, end, [&](int place, int lane) {
        return of_lane(own.load(unit_of(warp, round, place), lane), take_unit(peer, round, place, lane));
      });
    }
  }
  count_rounds(slots, 0, 2, warp.index, rounds, here);
}

}  // namespace altorch::kernels
