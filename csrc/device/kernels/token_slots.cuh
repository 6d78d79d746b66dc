// SPDX-License-Identifier: BSD-3-Clause
// Where the tokens of all ranks go on this rank, for altorch.TokenSwitch (token_jobs.cuh). Include
// after ll_norm.cuh.
//
// A thread block for each local expert reads all entries in order, twice: it counts its own and
// those of lower experts, then gives its own their slots. Each warp reads one stretch of the
// entries. In the flat layout one more block does so for tokens.

namespace altorch::kernels {

AL_DEVICE int tokens_of(const TokenTable& table, int rank) {
  const int tokens = table.gathered[rank * (TokenTable::kHeader + static_cast<i64>(table.max_tokens) * table.columns) +
                                    TokenTable::kTokens];
  return tokens < table.max_tokens ? tokens : table.max_tokens;
}
AL_DEVICE const int* indices_of(const TokenTable& table, int rank) {
  return table.gathered + rank * (TokenTable::kHeader + static_cast<i64>(table.max_tokens) * table.columns) +
         TokenTable::kHeader;
}
AL_DEVICE bool is_local(const TokenTable& table, int index) {
  return index >= table.first && index - table.first < table.local;
}

// What thread `thread` of `threads` does.
AL_DEVICE void pack_indices(const IndexPack& job, i64 thread, i64 threads) {
  for (i64 at = thread; at < job.size; at += threads) {
    const i64 entry = at - TokenTable::kHeader;
    i64 word = -1;
    if (entry < 0) {
      word = job.header[at];
    } else if (entry < job.sent) {
      word = job.wide ? static_cast<const i64*>(job.indices)[entry] : static_cast<const int*>(job.indices)[entry];
    }
    job.packed[at] = static_cast<int>(word < -0x80000000LL ? -0x80000000LL : word > 0x7FFFFFFF ? 0x7FFFFFFF : word);
  }
}

// What the warps of a block have counted.
struct SlotCounts {
  int own = 0, lower = 0, worst = TokenTable::kNoneBad;
};
struct BlockCounts {
  SlotCounts all;
  int before = 0;  // own ones, of the warps before this one
};
AL_DEVICE int lower_of(int a, int b) { return a < b ? a : b; }
AL_DEVICE BlockCounts counts_of_block(SlotCounts mine) {
  struct OfWarps {
    int own[16], lower[16], worst[16];
  };
  AL_SHARED(OfWarps, found);
#ifdef __CUDACC__
  AL_UNROLL for (int apart = AL_WARP / 2; apart > 0; apart /= 2) {
    mine.own += __shfl_xor_sync(0xFFFFFFFFu, mine.own, apart);
    mine.lower += __shfl_xor_sync(0xFFFFFFFFu, mine.lower, apart);
    mine.worst = lower_of(mine.worst, __shfl_xor_sync(0xFFFFFFFFu, mine.worst, apart));
  }
#endif
  const int warp = static_cast<int>(AL_THREAD / AL_WARP), warps = static_cast<int>(AL_THREADS / AL_WARP);
  if (AL_THREAD % AL_WARP == 0) {
    found.own[warp] = mine.own;
    found.lower[warp] = mine.lower;
    found.worst[warp] = mine.worst;
  }
  AL_SYNCHRONIZE();
  BlockCounts counts;
  for (int i = 0; i < warps; ++i) {
    if (i == warp) counts.before = counts.all.own;
    counts.all.own += found.own[i];
    counts.all.lower += found.lower[i];
    counts.all.worst = lower_of(counts.all.worst, found.worst[i]);
  }
  return counts;
}

// Calls act(rank, unit of that rank, whether there is such a unit) for the stretch of units that
// this thread's warp has, in order: a unit for each lane, and all lanes at once. A token has
// `units` units.
template <class Act>
AL_DEVICE void for_each_of_warp(const TokenTable& table, int units, const Act& act) {
  int longest = 0;
  for (int rank = 0; rank < table.ranks; ++rank) {
    const int tokens = tokens_of(table, rank);
    longest = tokens > longest ? tokens : longest;
  }
  const int warp = static_cast<int>(AL_THREAD / AL_WARP), warps = static_cast<int>(AL_THREADS / AL_WARP);
  const int lane = static_cast<int>(AL_THREAD % AL_WARP);
  const i64 of_rank = static_cast<i64>(longest) * units;
  const Range mine = part_of(of_rank * table.ranks, warp, warps);
  for (i64 begin = mine.begin; begin < mine.end;) {
    const int rank = static_cast<int>(begin / of_rank);
    const i64 edge = (rank + 1) * of_rank, end = edge < mine.end ? edge : mine.end;
    const i64 behind = rank * of_rank + static_cast<i64>(tokens_of(table, rank)) * units;
    const int last = static_cast<int>((end < behind ? end : behind) - rank * of_rank);
    for (int at = static_cast<int>(begin - rank * of_rank); at < last; at += AL_WARP)
      act(rank, at + lane, at + lane < last);
    begin = end;
  }
}

// The place of this lane among the lanes for which it holds, after `before` places of other lanes;
// `before` grows by all of them.
AL_DEVICE int next_place(bool holds, int& before) {
#ifdef __CUDACC__
  const unsigned lanes = __ballot_sync(0xFFFFFFFFu, holds);
  const int place = before + __popc(lanes & ((1u << threadIdx.x % AL_WARP) - 1));
  before += __popc(lanes);
  return place;
#else
  const int place = before;
  before += holds;
  return place;
#endif
}

// Whole blocks call these. `expert`: counted from the first local one.
AL_DEVICE void find_slots_of_expert(const TokenTable& table, int expert) {
  const int own = table.first + expert;
  SlotCounts mine;
  for_each_of_warp(table, table.columns, [&](int rank, int at, bool there) {
    const int index = there ? indices_of(table, rank)[at] : -1;
    mine.own += index == own;
    mine.lower += index >= table.first && index < own;
    if (index < -1 || index >= table.experts)
      mine.worst = lower_of(mine.worst, rank * table.max_tokens * table.columns + at);
  });
  const BlockCounts counts = counts_of_block(mine);
  const int kept = table.capacity > 0 ? lower_of(counts.all.own, table.capacity) : counts.all.own;
  const int base = table.capacity > 0 ? expert * table.capacity : counts.all.lower;
  if (AL_THREAD == 0) {
    table.summary[TokenTable::kCounts + expert] = kept;
    if (!table.flat && expert == table.local - 1)
      table.summary[TokenTable::kReceived] = counts.all.lower + counts.all.own;
    if (expert == 0) table.summary[TokenTable::kFirstBad] = counts.all.worst;
  }
  if (expert == 0) {
    int* const headers = table.summary + TokenTable::kCounts + table.local;
    for (int at = static_cast<int>(AL_THREAD); at < table.ranks * TokenTable::kHeader; at += static_cast<int>(AL_THREADS))
      headers[at] = indices_of(table, at / TokenTable::kHeader)[at % TokenTable::kHeader - TokenTable::kHeader];
  }
  if (table.flat) return;
  int before = counts.before;
  for_each_of_warp(table, table.columns, [&](int rank, int at, bool there) {
    const int index = there ? indices_of(table, rank)[at] : -1;
    const bool is_own = there && index == own;
    const int place = next_place(is_own, before);
    // The first block marks the entries of no local expert.
    if (is_own || (there && expert == 0 && !is_local(table, index)))
      table.slots[static_cast<i64>(rank) * table.max_tokens * table.columns + at] =
          is_own && place < kept ? base + place : -1;
  });
}

AL_DEVICE void find_slots_of_tokens(const TokenTable& table) {
  const auto has_expert_here = [&](int rank, int token, bool there) {
    bool here = false;
    for (int k = 0; there && k < table.columns; ++k)
      here |= is_local(table, indices_of(table, rank)[static_cast<i64>(token) * table.columns + k]);
    return here;
  };
  SlotCounts mine;
  for_each_of_warp(table, 1,
                   [&](int rank, int token, bool there) { mine.own += has_expert_here(rank, token, there); });
  const BlockCounts counts = counts_of_block(mine);
  if (AL_THREAD == 0) table.summary[TokenTable::kReceived] = counts.all.own;
  int before = counts.before;
  for_each_of_warp(table, 1, [&](int rank, int token, bool there) {
    const bool here = has_expert_here(rank, token, there);
    const int place = next_place(here, before);
    if (there) table.slots[static_cast<i64>(rank) * table.max_tokens + token] = here ? place : -1;
  });
}

// Block `block` of `local`, and one more in the flat layout.
AL_DEVICE void find_slots(const TokenTable& table, int block) {
  block < table.local ? find_slots_of_expert(table, block) : find_slots_of_tokens(table);
}

#ifdef __CUDACC__
AL_DEVICE void run_pack_indices(const IndexPack& job) {
  AL_LAUNCH_DEPENDENTS();
  pack_indices(job, blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x, gridDim.x * static_cast<i64>(blockDim.x));
}
AL_DEVICE void run_find_slots(const TokenTable& table) {
  AL_LAUNCH_DEPENDENTS();
  find_slots(table, static_cast<int>(blockIdx.x));
}
#endif

}  // namespace altorch::kernels
