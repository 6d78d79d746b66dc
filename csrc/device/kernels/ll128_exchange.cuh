// SPDX-License-Identifier: BSD-3-Clause
// LL128 exchange of blocks between pairs of ranks, for collectives that move data. Include after
// ll128.cuh.

namespace altorch::kernels {

// Exchanges this rank's and another rank's block. Run by one warp.
template <class Packs>
AL_DEVICE void exchange_with(const Ll128Exchange& job, int rank, const Warp& warp) {
  const Ll128Slots& slots = job.slots;
  const Ll128Peer peer = ll128_peer(slots, rank, warp);
  const Packs given = Packs::of(job.input[rank], job.sent[rank]);
  const int sent = given.units(), units = units_in(packs_in(job.taken[rank]));
  const int rounds = rounds_for(units < sent ? sent : units, warp);
  const int end = Packs::kEndsApart ? turn_of_end(job.taken[rank], warp) : -kUnitsOfRound;
  bool here = !has_aborted(slots);
  for (int round = -kAhead; round < rounds; ++round) {
    if (round + kAhead < rounds) push_units(peer, given, warp, round + kAhead, here);
    if (round < 0) continue;
    here = here && await_units(peer, warp, round, units, slots.aborted);
    UnitsOfRound packs;  // whose loads are under way together
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      for (int i = 0; i < AL_LANES; ++i)
        packs[place][i] = here ? take_unit(peer, round, place, AL_LANE(i)) : poisoned_packs(job.poison[rank]);
    }
    AL_UNROLL for (int place = 0; place < kUnitsOfRound; ++place) {
      for (int i = 0; i < AL_LANES; ++i)
        Packs::store(job.output[rank], job.taken[rank], unit_of(warp, round, place), AL_LANE(i), packs[place][i]);
    }
    if (round != end / kUnitsOfRound) continue;
    store_end(job.output[rank], job.taken[rank], end, [&](int place, int lane) {
      return here ? take_unit(peer, round, place, lane) : poisoned_packs(job.poison[rank]);
    });
  }
  count_rounds(slots, rank, rank + 1, warp.index, rounds, here);
}
// Copies the block that this rank has for itself.
template <class Packs>
AL_DEVICE void copy_own(const Ll128Exchange& job, const Warp& warp) {
  const int rank = job.slots.rank;
  const Packs kept = Packs::of(job.input[rank], job.sent[rank]);
  for (int unit = warp.index; unit < kept.units(); unit += warp.number) {
    for (int i = 0; i < AL_LANES; ++i)
      Packs::store(job.output[rank], job.sent[rank], unit, AL_LANE(i), kept.load(unit, AL_LANE(i)));
  }
  const int end = Packs::kEndsApart ? turn_of_end(job.sent[rank], warp) : -kUnitsOfRound;
  if (end < 0) return;
  store_end(job.output[rank], job.sent[rank], end,
            [&](int, int lane) { return kept.load(end * warp.number + warp.index, lane); });
}

template <class Packs>
AL_DEVICE void exchange_packs(const Ll128Exchange& job, int rank, const Warp& warp) {
  rank == job.slots.rank ? copy_own<Packs>(job, warp) : exchange_with<Packs>(job, rank, warp);
}
AL_DEVICE void exchange_rank(const Ll128Exchange& job, int rank, const Warp& warp) {
  const bool whole =
      WholePacks::hold(job.input[rank], job.sent[rank]) && WholePacks::hold(job.output[rank], job.taken[rank]);
  whole ? exchange_packs<WholePacks>(job, rank, warp) : exchange_packs<AnyPacks>(job, rank, warp);
}

#ifdef __CUDACC__
// The grid has one row of thread blocks for each rank.
AL_DEVICE void run_ll128_exchange(const Ll128Exchange& job) {
  const int rank = static_cast<int>(blockIdx.y), warps = job.blocks[rank] * kWarpsOfBlock;
  if (own_warp() < warps) exchange_rank(job, rank, {own_warp(), warps});
  AL_SYNCHRONIZE();
  AL_LAUNCH_DEPENDENTS();
}
#endif

}  // namespace altorch::kernels
