// SPDX-License-Identifier: BSD-3-Clause
// An all_reduce and the RMS norm that follows it in a layer of a transformer, in one kernel: the
// sum is added to the residual of the layer before, and each row of that is divided by its root
// mean square. Ranks post and take words as in ll.cuh. Include after ll.cuh. A thread block has
// whole rows, so no thread block waits for another one of the same rank.
//
// Each result is narrowed as if each step were a kernel of its own, so the sums are the same as
// those of all_reduce and +.

// The lanes of a warp add among themselves. On the host each thread is a warp of one lane.
#ifdef __CUDACC__
#define AL_WARP 32
#else
#define AL_WARP 1
#endif

namespace altorch::kernels {

// The sum over all threads of the block. All threads add in the same order, so they get the same
// bits.
template <class Value>
AL_DEVICE Value sum_of_block(Value own) {
  struct Partials {
    Value of_warp[512 / AL_WARP];
  };
  AL_SHARED(Partials, partials);
#ifdef __CUDACC__
  AL_UNROLL for (int apart = AL_WARP / 2; apart > 0; apart /= 2) own += __shfl_xor_sync(0xFFFFFFFFu, own, apart);
#endif
  AL_SYNCHRONIZE();  // no thread reads the sums of the previous row any more
  if (AL_THREAD % AL_WARP == 0) partials.of_warp[AL_THREAD / AL_WARP] = own;
  AL_SYNCHRONIZE();
  Value sum = 0;
  for (int warp = 0; warp < static_cast<int>(AL_THREADS / AL_WARP); ++warp) sum += partials.of_warp[warp];
  return sum;
}

// Computes and stores the sums of one row. Returns the sum of the squares of those elements that
// this thread has computed.
template <class Number, class Operator>
AL_DEVICE typename Number::Computed add_row(const NormedSum& job, const Turn& turn, i64 posted, const Range& row) {
  using Stored = typename Number::Stored;
  using Computed = typename Number::Computed;
  using Unit = Words<Stored>;
  const LlExchange& small = job.exchange;
  Computed squares = 0;
  const i64 whole = whole_units(static_cast<const Stored*>(small.input), small.count);
  for_each_unit<kUnitsAtOnce<Stored>>(row, whole, [&](auto several, i64 first) {
    constexpr int kAtOnce = decltype(several)::kAtOnce;
    Computed sums[kAtOnce][Unit::kElements]{};
    const bool here = reduce_units<Number, Operator>(small, turn, first, posted, sums);
    AL_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      const i64 at = (first + i * static_cast<i64>(AL_THREADS)) * Unit::kElements;
      const Unit before = load_unit(static_cast<const Stored*>(job.residual) + at, small.count - at);
      Unit sum;
      AL_UNROLL for (int j = 0; j < Unit::kElements; ++j) {
        const Computed added = Number::widen(before.elements[j]) + Number::widen(Number::narrow(sums[i][j]));
        sum.elements[j] = here ? Number::narrow(added) : poisoned<Number>(small);
        squares += Number::widen(sum.elements[j]) * Number::widen(sum.elements[j]);
      }
      store_unit(static_cast<Stored*>(job.summed) + at, small.count - at, sum);
    }
  });
  return squares;
}

AL_DEVICE float root_of(float value) { return sqrtf(value); }
AL_DEVICE double root_of(double value) { return sqrt(value); }

// Divides a row: each thread divides the elements that it has added itself.
template <class Number>
AL_DEVICE void divide_row(const NormedSum& job, const Range& row, typename Number::Computed factor) {
  using Stored = typename Number::Stored;
  using Unit = Words<Stored>;
  const i64 count = job.exchange.count;
  for_each_unit<1>(row, 0, [&](auto, i64 first) {
    const i64 at = first * Unit::kElements, column = (first - row.begin) * Unit::kElements;
    Unit unit = load_unit(static_cast<const Stored*>(job.summed) + at, count - at), weight{};
    if (job.weight) weight = load_unit(static_cast<const Stored*>(job.weight) + column, job.row - column);
    AL_UNROLL for (int j = 0; j < Unit::kElements; ++j) {
      const auto divided = Number::widen(unit.elements[j]) * factor;
      unit.elements[j] = Number::narrow(job.weight ? divided * Number::widen(weight.elements[j]) : divided);
    }
    store_unit(static_cast<Stored*>(job.exchange.output) + at, count - at, unit);
  });
}

// The rows of a thread block, in units. All blocks have equally many, except for the last ones.
template <class Number>
AL_DEVICE Range rows_of(const NormedSum& job, i64 block, i64 blocks) {
  const i64 units = job.row / Words<typename Number::Stored>::kElements;
  const Range rows = part_of(job.exchange.count / job.row, block, blocks);
  return {rows.begin * units, rows.end * units};
}

template <class Number, class Operator, bool>
AL_DEVICE void sum_and_norm(const NormedSum& job, i64 block, i64 blocks) {
  using Computed = typename Number::Computed;
  const i64 units = job.row / Words<typename Number::Stored>::kElements;
  const Turn turn = turn_of(job.exchange, block, blocks);
  const Range all = rows_of<Number>(job, block, blocks);
  send_units<Number>(job.exchange, turn, all);
  for (i64 begin = all.begin; begin < all.end; begin += units) {
    const Range row = {begin, begin + units};
    const Computed squares = sum_of_block(add_row<Number, Operator>(job, turn, all.begin, row));
    const Computed mean = squares / static_cast<Computed>(job.row) + static_cast<Computed>(job.epsilon);
    divide_row<Number>(job, row, Computed(1) / root_of(mean));
  }
  meet(job.exchange, turn, all.begin < all.end, 0, job.exchange.number);
  end_turn(job.exchange, turn);
}

#ifdef __CUDACC__
template <class Number, class Operator, bool kMean>
AL_DEVICE void run_ll_norm(const NormedSum& job) {
  sum_and_norm<Number, Operator, kMean>(job, blockIdx.x, gridDim.x);
}
#endif

}  // namespace altorch::kernels
