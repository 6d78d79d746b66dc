// SPDX-License-Identifier: BSD-3-Clause
// LL128 reduction among more than two ranks. One-shot: each rank reduces what it needs. Two-shot:
// each rank reduces a share, and pushes the result to all ranks, or to one. Include after
// ll128_reduce.cuh and ll128_all_peers.cuh.
//
// Two-shot alternates rounds of parts and rounds of results. A rank pushes its next part before it
// reads the results of the round before, so that both are in flight. It reuses a slot after all
// ranks have begun a round that follows the read of it.

namespace altorch::kernels {

// Whether shares are pushed after the reduction (Ll128Reduce::passed_to), and whether `rank` gets
// them.
AL_DEVICE bool is_passed_on(const Ll128Reduce& job) { return job.passed_to != Ll128Reduce::kToNone; }
AL_DEVICE bool is_passed_to(const Ll128Reduce& job, int rank) {
  return job.passed_to == Ll128Reduce::kToAll || job.passed_to == rank;
}

// Where the share of rank `of` lies in the output. All shares are aligned if the first one is.
template <class Stored>
AL_DEVICE Stored* share_in(const Ll128Reduce& job, int of) {
  return static_cast<Stored*>(job.output) + (is_passed_on(job) ? job.begins[of] : 0);
}

// Fills what this warp would have stored with the poison pattern.
template <class Stored, class Packs>
AL_DEVICE void poison_shares(const Ll128Reduce& job, const Warp& warp) {
  const int rank = job.slots.rank;
  for (int of = 0; of < job.slots.number; ++of) {
    if (is_passed_on(job) ? !is_passed_to(job, rank) : of != rank) continue;
    for (int unit = warp.index; unit < job.units[of]; unit += warp.number) {
      for (int i = 0; i < AL_LANES; ++i)
        Packs::store_poison(share_in<Stored>(job, of), bytes_for<Stored>(job, of), unit, AL_LANE(i), job.poison);
    }
  }
}

// Stores a unit of every other rank's share, after await_all().
template <class Stored, class Packs>
AL_DEVICE void take_shares(const Ll128Reduce& job, const WithAll& all, int turn, int unit) {
  for (int first = 1; first < job.slots.number; first += kTogether) {
    LanePacks packs[kTogether][AL_LANES];
    AL_UNROLL for (int t = 0; t < kTogether; ++t) {
      for (int i = 0; i < AL_LANES; ++i) packs[t][i] = take_from(all, turn, all.other(first + t), AL_LANE(i));
    }
    AL_UNROLL for (int t = 0; t < kTogether; ++t) {
      if (first + t >= job.slots.number) continue;
      const int of = all.other(first + t);
      for (int i = 0; i < AL_LANES; ++i)
        Packs::store_all(share_in<Stored>(job, of), bytes_for<Stored>(job, of), unit, AL_LANE(i), packs[t][i]);
    }
  }
}

// Reduces a unit of this rank's share from the parts of all ranks, in the order of the ranks. The
// loads of two parts are in flight at once.
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_parts(const WithAll& all, int turn, const LanePacks (&own)[AL_LANES], LanePacks (&result)[AL_LANES]) {
  constexpr int kPair = 2;
  const int ranks = all.slots.number;
  PackSum<Number> sums[2][AL_LANES]{};
  for (int first = 0; first < ranks; first += kPair) {
    LanePacks parts[kPair][AL_LANES];
    AL_UNROLL for (int t = 0; t < kPair; ++t) {
      const bool is_own = first + t == all.slots.rank;
      for (int i = 0; i < AL_LANES; ++i) parts[t][i] = is_own ? own[i] : take_from(all, turn, first + t, AL_LANE(i));
    }
    AL_UNROLL for (int t = 0; t < kPair; ++t) {
      if (first + t >= ranks) continue;
      for (int i = 0; i < AL_LANES; ++i) {
        sums[0][i].template add<Operator>(parts[t][i].first, first + t == 0);
        sums[1][i].template add<Operator>(parts[t][i].second, first + t == 0);
      }
    }
  }
  for (int i = 0; i < AL_LANES; ++i) {
    const auto part = [all, turn, mine = own[i], lane = AL_LANE(i)](int rank) {
      return rank == all.slots.rank ? mine : take_from(all, turn, rank, lane);
    };
    result[i] = {sums[0][i].template pack<kMean>(ranks, [part](int rank) { return part(rank).first; }),
                 sums[1][i].template pack<kMean>(ranks, [part](int rank) { return part(rank).second; })};
  }
}

// By one warp.
template <class Number, class Operator, bool kMean, class Packs>
AL_DEVICE void reduce_among_all(const Ll128Reduce& job, const Warp& warp) {
  using Stored = typename Number::Stored;
  const int rank = job.slots.rank;
  const bool passes = is_passed_on(job), keeps = !passes || is_passed_to(job, rank);
  const int kinds = passes ? 2 : 1, ahead = passes ? 0 : kAhead;
  const int rounds = job.most_units <= warp.number ? 1 : (job.most_units + warp.number - 1) / warp.number;
  const WithAll all(job.slots, warp);
  bool here = !has_aborted(job.slots);
  for (int round = -ahead; round < rounds + kinds - 1; ++round) {
    const int unit = round * warp.number + warp.index, next = unit + ahead * warp.number, last = unit - warp.number;
    if (round + ahead < rounds)
      push_to_all(
          all, (round + ahead) * kinds, here, [&](int to) { return next < job.units[to]; },
          [&](int to, int lane) { return packs_for<Number, Packs>(job, to).load(next, lane); });
    if (!here) break;
    if (passes && round > 0) {
      const int turn = (round - 1) * kinds + 1;
      here = await_all(all, turn, [&](int of) { return keeps && last < job.units[of]; });
      if (!here) break;
      if (keeps) take_shares<Stored, Packs>(job, all, turn, last);
    }
    if (round < 0 || round == rounds) continue;
    const bool reduces = unit < job.units[rank];
    LanePacks own[AL_LANES], result[AL_LANES] = {};
    for (int i = 0; i < AL_LANES; ++i) own[i] = packs_for<Number, Packs>(job, rank).load(unit, AL_LANE(i));
    here = await_all(all, round * kinds, [&](int) { return reduces; });
    if (!here) break;
    if (reduces) reduce_parts<Number, Operator, kMean>(all, round * kinds, own, result);
    for (int i = 0; keeps && i < AL_LANES; ++i)
      Packs::store_all(share_in<Stored>(job, rank), bytes_for<Stored>(job, rank), unit, AL_LANE(i), result[i]);
    if (passes)
      push_to_all(
          all, round * kinds + 1, here, [&](int to) { return reduces && is_passed_to(job, to); },
          [&](int, int lane) { return result[AL_LANES == 1 ? 0 : lane]; });
  }
  if (!here) poison_shares<Stored, Packs>(job, warp);
  count_rounds(job.slots, 0, job.slots.number, warp.index, rounds * kinds, here);
}

template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_stored(const Ll128Reduce& job, const Warp& warp) {
  const bool whole = is_whole<typename Number::Stored>(job);
  if (job.slots.number == 2) {
    using Two = typename TwoRankNumber<Number>::Type;
    whole ? reduce_between_two<Two, Operator, kMean, WholePacks>(job, warp)
          : reduce_between_two<Two, Operator, kMean, ScaledPacks<Two>>(job, warp);
  } else {
    whole ? reduce_among_all<Number, Operator, kMean, WholePacks>(job, warp)
          : reduce_among_all<Number, Operator, kMean, ScaledPacks<Number>>(job, warp);
  }
}
template <class Number, class Operator, bool kMean>
AL_DEVICE void reduce_ll128(const Ll128Reduce& job, const Warp& warp) {
  if constexpr (requires { typename Number::Packs; }) {
    using Packs = typename Number::Packs;
    job.slots.number == 2 ? reduce_between_two<Number, Operator, kMean, Packs>(job, warp)
                          : reduce_among_all<Number, Operator, kMean, Packs>(job, warp);
  } else {
    reduce_stored<Number, Operator, kMean>(job, warp);
  }
}

#ifdef __CUDACC__
// Lets the next kernel of the stream launch (programmatic dependent launch) when no warp of this
// block waits any more.
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_ll128_reduce(const Ll128Reduce& job) {
  reduce_ll128<Number, Operator, kMean>(job, {own_warp(), job.blocks * kWarpsOfBlock});
  AL_SYNCHRONIZE();
  AL_LAUNCH_DEPENDENTS();
}
#endif

}  // namespace altorch::kernels
