// SPDX-License-Identifier: BSD-3-Clause
// Moves and adds rows of tokens, for altorch.TokenSwitch (token_jobs.cuh). Include after
// token_slots.cuh. Several blocks work on a row, each on a piece of it. A row to be scattered is
// read once, and written to each of its slots. Rows behind a rank's last token are neither read nor
// written.

namespace altorch::kernels {

// The piece of a row that the threads of a block move, and which thread runs.
struct RowSlice {
  i64 thread, threads;
  int piece, pieces;
};

// The bytes of one load or store.
template <int kBytes>
struct alignas(kBytes) ByteVector {
  unsigned char bytes[kBytes];
};
template <>
struct alignas(16) ByteVector<16> {
  u64 words[2];
};
template <>
struct ByteVector<4> {
  unsigned word;
};
template <>
struct ByteVector<2> {
  unsigned short half;
};

// Calls act(a ByteVector) of the size at which everything in `addresses` is aligned.
template <class Act>
AL_DEVICE void with_vector(u64 addresses, const Act& act) {
  if (addresses % 16 == 0) return act(ByteVector<16>{});
  if (addresses % 4 == 0) return act(ByteVector<4>{});
  if (addresses % 2 == 0) return act(ByteVector<2>{});
  act(ByteVector<1>{});
}
AL_DEVICE u64 alignment_of(const TokenRows& part) {
  return reinterpret_cast<u64>(part.from) | reinterpret_cast<u64>(part.to) |
         static_cast<u64>(part.width | part.rank_stride | part.from_stride | part.to_stride);
}

// Writes a row, or zeros where `from` is null, to each row of `part.to` that to_row(0), ...
// to_row(copies - 1) names; below 0: to none.
template <class ToRow>
AL_DEVICE void copy_row(const TokenRows& part, const void* from, int copies, const RowSlice& slice,
                        const ToRow& to_row) {
  with_vector(alignment_of(part), [&](auto vector) {
    using Moved = decltype(vector);
    constexpr int kAtOnce = 4;
    const Range piece = part_of(part.width / static_cast<i64>(sizeof(Moved)), slice.piece, slice.pieces);
    for (i64 at = piece.begin + slice.thread; at < piece.end; at += kAtOnce * slice.threads) {
      Moved held[kAtOnce]{};
      AL_UNROLL for (int i = 0; i < kAtOnce; ++i) {
        const i64 here = at + i * slice.threads;
        if (from && here < piece.end) held[i] = static_cast<const Moved*>(from)[here];
      }
      for (int k = 0; k < copies; ++k) {
        const i64 row = to_row(k);
        if (row < 0) continue;
        auto* const to = reinterpret_cast<Moved*>(static_cast<unsigned char*>(part.to) + row * part.to_stride);
        AL_UNROLL for (int i = 0; i < kAtOnce; ++i) {
          const i64 here = at + i * slice.threads;
          if (here < piece.end) to[here] = held[i];
        }
      }
    }
  });
}
AL_DEVICE const void* row_of(const TokenRows& part, int rank, int row) {
  return static_cast<const unsigned char*>(part.from) + rank * part.rank_stride + row * part.from_stride;
}

AL_DEVICE void pack_rows(const RowPack& job, int row, const RowSlice& slice) {
  for (int i = 0; i < job.number; ++i)
    copy_row(job.parts[i], row_of(job.parts[i], 0, row), 1, slice, [row](int) { return row; });
}

// The weights of a token, and in the flat layout its experts here.
AL_DEVICE void scatter_weights(const RowScatter& job, int rank, int token, const int* slots, const RowSlice& slice) {
  const TokenTable& table = job.table;
  const float* const weights = job.weights + rank * job.weights_rank_stride + token * job.weights_row_stride;
  for (i64 k = slice.thread; k < table.columns; k += slice.threads) {
    const int slot = slots[table.flat ? 0 : k];
    if (slot < 0 || slot >= job.room) continue;
    if (!table.flat) {
      job.out_weights[slot] = weights[k];
      continue;
    }
    const int index = indices_of(table, rank)[static_cast<i64>(token) * table.columns + k];
    const bool here = is_local(table, index);
    job.out_weights[static_cast<i64>(slot) * table.columns + k] = here ? weights[k] : 0;
    if (job.out_indices) job.out_indices[static_cast<i64>(slot) * table.columns + k] = here ? index : -1;
  }
}
AL_DEVICE void scatter_row(const RowScatter& job, int source, const RowSlice& slice) {
  const TokenTable& table = job.table;
  const int rank = source / job.count, token = source % job.count;
  const int* const slots = table.slots + (static_cast<i64>(rank) * table.max_tokens + token) * table.rows_per_token;
  bool used = false;
  for (int k = 0; k < table.rows_per_token; ++k) used |= slots[k] >= 0;
  if (token >= tokens_of(table, rank) || !used) return;
  for (int i = 0; i < job.number; ++i) {
    copy_row(job.parts[i], row_of(job.parts[i], rank, token), table.rows_per_token, slice,
             [&](int k) { return slots[k] < job.room ? slots[k] : -1; });
  }
  if (job.weights && slice.piece == 0) scatter_weights(job, rank, token, slots, slice);
}

AL_DEVICE bool is_used(const TokenTable& table, int row) {
  if (table.capacity == 0) return row < table.summary[TokenTable::kReceived];
  const int expert = row / table.capacity;
  return expert < table.local && row % table.capacity < table.summary[TokenTable::kCounts + expert];
}
AL_DEVICE void clear_row(const RowScatter& job, int row, const RowSlice& slice) {
  if (is_used(job.table, row)) return;
  for (int i = 0; i < job.number; ++i)
    copy_row(job.parts[i], nullptr, 1, slice, [row](int) { return row; });
  const int columns = job.table.flat ? job.table.columns : 1;
  for (i64 k = slice.thread; job.weights && slice.piece == 0 && k < columns; k += slice.threads) {
    job.out_weights[static_cast<i64>(row) * columns + k] = 0;
    if (job.out_indices) job.out_indices[static_cast<i64>(row) * columns + k] = -1;
  }
}
// Row `row` of ranks * count + unused ones.
AL_DEVICE void scatter_rows(const RowScatter& job, int row, const RowSlice& slice) {
  const int sources = job.table.ranks * job.count;
  row < sources ? scatter_row(job, row, slice) : clear_row(job, row - sources, slice);
}

// Group: elements that move at once.
template <class Number, class Group>
AL_DEVICE void sum_groups(const RowSum& job, const int* slots, i64 output, const RowSlice& slice) {
  using Stored = typename Number::Stored;
  constexpr int kLength = sizeof(Group) / sizeof(Stored), kAtOnce = 4;
  const auto* const rows = static_cast<const Stored*>(job.rows);
  const Range piece = part_of(job.width / kLength, slice.piece, slice.pieces);
  for (i64 at = piece.begin + slice.thread; at < piece.end; at += slice.threads) {
    typename Number::Computed sum[kLength]{};
    for (int begin = 0; begin < job.table.rows_per_token; begin += kAtOnce) {
      Group held[kAtOnce]{};
      AL_UNROLL for (int i = 0; i < kAtOnce; ++i) {
        const int slot = begin + i < job.table.rows_per_token ? slots[begin + i] : -1;
        if (slot >= 0 && slot < job.room) held[i] = reinterpret_cast<const Group*>(rows + slot * job.stride)[at];
      }
      AL_UNROLL for (int i = 0; i < kAtOnce; ++i) {
        const auto* const elements = reinterpret_cast<const Stored*>(&held[i]);
        AL_UNROLL for (int j = 0; j < kLength; ++j) sum[j] += Number::widen(elements[j]);
      }
    }
    Group result;
    auto* const elements = reinterpret_cast<Stored*>(&result);
    AL_UNROLL for (int j = 0; j < kLength; ++j) elements[j] = Number::narrow(sum[j]);
    reinterpret_cast<Group*>(static_cast<Stored*>(job.output) + output * job.width)[at] = result;
  }
}
template <class Number>
AL_DEVICE void sum_rows(const RowSum& job, int row, const RowSlice& slice) {
  using Stored = typename Number::Stored;
  const int rank = row / job.count, token = row % job.count;
  if (token >= tokens_of(job.table, rank)) return;
  const int* const slots =
      job.table.slots + (static_cast<i64>(rank) * job.table.max_tokens + token) * job.table.rows_per_token;
  const u64 addresses = reinterpret_cast<u64>(job.rows) | reinterpret_cast<u64>(job.output) |
                        static_cast<u64>(job.stride | job.width) * sizeof(Stored);
  addresses % 16 == 0 ? sum_groups<Number, Pack<Stored>>(job, slots, row, slice)
                      : sum_groups<Number, Stored>(job, slots, row, slice);
}

#ifdef __CUDACC__
// The grid of the following has a column of blocks for each row, and as many rows as pieces.
AL_DEVICE RowSlice slice_of_block() {
  return {threadIdx.x, blockDim.x, static_cast<int>(blockIdx.y), static_cast<int>(gridDim.y)};
}
AL_DEVICE void run_pack_rows(const RowPack& job) {
  AL_LAUNCH_DEPENDENTS();
  pack_rows(job, static_cast<int>(blockIdx.x), slice_of_block());
}
AL_DEVICE void run_scatter_rows(const RowScatter& job) {
  AL_LAUNCH_DEPENDENTS();
  scatter_rows(job, static_cast<int>(blockIdx.x), slice_of_block());
}
template <class Number>
AL_DEVICE void run_sum_rows(const RowSum& job) {
  AL_LAUNCH_DEPENDENTS();
  sum_rows<Number>(job, static_cast<int>(blockIdx.x), slice_of_block());
}
#endif

}  // namespace altorch::kernels
