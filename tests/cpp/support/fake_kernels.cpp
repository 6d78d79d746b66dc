// SPDX-License-Identifier: BSD-3-Clause
// The kernels, run by the fake device: the very source that NVRTC compiles, in blocks of a few threads.
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

#define AL_PAUSE() std::this_thread::yield()
// In the order in which they go to NVRTC.
// clang-format off
#include "support/fake_block.h"
#include "device/kernels/numbers.cuh"
#include "device/kernels/reduce.cuh"
#include "device/kernels/ll.cuh"
#include "device/kernels/pairs.cuh"
#include "device/kernels/poison.cuh"
#include "device/kernels/rounds.cuh"
#include "device/kernels/parts.cuh"
#include "device/kernels/one_shot.cuh"
#include "device/kernels/two_shot.cuh"
#include "device/kernels/exchange.cuh"
#include "device/kernels/ll128.cuh"
#include "device/kernels/ll128_reduce.cuh"
#include "device/kernels/ll128_all_peers.cuh"
#include "device/kernels/ll128_two_shot.cuh"
#include "device/kernels/ll128_exchange.cuh"
#include "device/kernels/ll_norm.cuh"
#include "device/kernels/window.cuh"
// clang-format on
#include "support/fake_device.h"

namespace altorch {
namespace {

static_assert(sizeof(kernels::Ll) == sizeof(LlExchange));
static_assert(offsetof(kernels::Ll, numbers) == offsetof(LlExchange, numbers));
static_assert(offsetof(kernels::Ll, half) == offsetof(LlExchange, half));
static_assert(offsetof(kernels::Ll, sends_data) == offsetof(LlExchange, sends_data));
static_assert(offsetof(kernels::Ll, number) == offsetof(LlExchange, number));
static_assert(offsetof(kernels::Ll, factor) == offsetof(LlExchange, factor));
static_assert(offsetof(kernels::Ll, poison) == offsetof(LlExchange, poison));
static_assert(sizeof(kernels::LlNorm) == sizeof(NormedSum));
static_assert(offsetof(kernels::LlNorm, residual) == offsetof(NormedSum, residual));
static_assert(offsetof(kernels::LlNorm, row) == offsetof(NormedSum, row));
static_assert(sizeof(kernels::Pairs) == sizeof(PairExchange));
static_assert(offsetof(kernels::Pairs, poison) == offsetof(PairExchange, poison));
static_assert(offsetof(kernels::Pairs, number) == offsetof(PairExchange, number));
static_assert(offsetof(kernels::Pairs::Pair, numbers) == offsetof(PairExchange::Pair, numbers));
static_assert(offsetof(kernels::Pairs::Pair, blocks) == offsetof(PairExchange::Pair, blocks));
static_assert(sizeof(kernels::TwoShotReduce) == sizeof(TwoShotReduce));
static_assert(offsetof(kernels::TwoShotReduce, input) == offsetof(TwoShotReduce, input));
static_assert(offsetof(kernels::TwoShotReduce, goes_to) == offsetof(TwoShotReduce, goes_to));
static_assert(offsetof(kernels::TwoShotReduce, factor) == offsetof(TwoShotReduce, factor));
static_assert(sizeof(kernels::OneShotReduce) == sizeof(OneShotReduce));
static_assert(offsetof(kernels::OneShotReduce, counts) == offsetof(OneShotReduce, counts));
static_assert(offsetof(kernels::OneShotReduce, blocks) == offsetof(OneShotReduce, blocks));
static_assert(offsetof(kernels::OneShotReduce, factor) == offsetof(OneShotReduce, factor));
static_assert(offsetof(kernels::BulkSlots, part) == offsetof(BulkSlots, part));
static_assert(offsetof(kernels::BulkSlots, blocks) == offsetof(BulkSlots, blocks));
static_assert(sizeof(kernels::Exchange) == sizeof(Exchange));
static_assert(offsetof(kernels::Exchange, blocks_sent) == offsetof(Exchange, blocks_sent));
static_assert(sizeof(kernels::Ll128Reduce) == sizeof(Ll128Reduce));
static_assert(offsetof(kernels::Ll128Reduce, input) == offsetof(Ll128Reduce, input));
static_assert(offsetof(kernels::Ll128Reduce, passed_to) == offsetof(Ll128Reduce, passed_to));
static_assert(kernels::kToAll == Ll128Reduce::kToAll && kernels::kToNone == Ll128Reduce::kToNone);
static_assert(offsetof(kernels::Ll128Reduce, most_units) == offsetof(Ll128Reduce, most_units));
static_assert(offsetof(kernels::Ll128Reduce, factor) == offsetof(Ll128Reduce, factor));
static_assert(offsetof(kernels::Ll128Slots, warps) == offsetof(Ll128Slots, warps));
static_assert(sizeof(kernels::Ll128Exchange) == sizeof(Ll128Exchange));
static_assert(offsetof(kernels::Ll128Exchange, poison) == offsetof(Ll128Exchange, poison));
static_assert(offsetof(kernels::Ll128Exchange, blocks) == offsetof(Ll128Exchange, blocks));
static_assert(kernels::kWarpsOfBlock == Ll128Slots::kWarpsOfBlock);
static_assert(kernels::kUnitPacks * 16 == Ll128Slots::kUnitBytes);
static_assert(kernels::kSlots * kernels::kUnitsOfRound * kernels::kUnitWords * 8 == Ll128Slots::kBytesOfWarp);
static_assert(sizeof(kernels::Poison) == sizeof(PoisonJob));
static_assert(offsetof(kernels::Poison, aborted) == offsetof(PoisonJob, aborted));

static_assert(sizeof(kernels::WindowMove) == sizeof(WindowMove));
static_assert(offsetof(kernels::WindowMove, raised) == offsetof(WindowMove, raised));
static_assert(offsetof(kernels::WindowMove, ended) == offsetof(WindowMove, ended));
static_assert(sizeof(kernels::WindowWait) == sizeof(WindowWait));
static_assert(offsetof(kernels::WindowWait, aborted) == offsetof(WindowWait, aborted));
static_assert(offsetof(kernels::WindowWait, pattern) == offsetof(WindowWait, pattern));
static_assert(sizeof(kernels::WindowUpdate) == sizeof(WindowUpdate));
static_assert(offsetof(kernels::WindowUpdate, ended) == offsetof(WindowUpdate, ended));
static_assert(sizeof(kernels::WindowNumber) == sizeof(WindowNumber));
static_assert(offsetof(kernels::WindowNumber, adds) == offsetof(WindowNumber, adds));

// A job as the kernels know it: the same bytes.
template <class Job, class Given>
Job as_kernels_see(const Given& given) {
  static_assert(sizeof(Job) == sizeof(Given));
  Job job;
  std::memcpy(&job, &given, sizeof job);
  return job;
}

constexpr int kBlocks = 2;  // of a kernel that waits for no peer

// Blocks run side by side on a GPU: here each posts before any waits.
template <class Number>
void post_all(const kernels::Ll& job) {
  for (int block = 0; block < job.blocks; ++block)
    FakeBlock::run([&] { kernels::send_units<Number>(job, kernels::turn_of(job, block, job.blocks)); });
}

template <class Number, class Operator, bool kMean>
void run_blocks(const kernels::Ll& job) {
  post_all<Number>(job);
  for (int block = 0; block < job.blocks; ++block)
    FakeBlock::run([&] { kernels::reduce_ll<Number, Operator, kMean>(job, block, job.blocks); });
}
template <class Number, class Operator, bool kMean>
void run_blocks(const kernels::TwoShotReduce& job) {
  for (int block = 0; block < job.blocks; ++block)
    FakeBlock::run([&] { kernels::reduce_two_shot<Number, Operator, kMean>(job, block); });
}
template <class Number, class Operator, bool kMean>
void run_blocks(const kernels::OneShotReduce& job) {
  std::thread pushes([&job] {
    for (int block = 0; block < job.blocks; ++block)
      FakeBlock::run([&] { kernels::push_one_shot<Number>(job, block); });
  });
  for (int block = 0; block < job.blocks; ++block)
    FakeBlock::run([&] { kernels::pull_one_shot<Number, Operator, kMean>(job, block); });
  pushes.join();
}
template <class Number, class Operator, bool kMean>
void run_blocks(const kernels::Ll128Reduce& job) {
  const int warps = job.blocks * kernels::kWarpsOfBlock;
  for (int warp = 0; warp < warps; ++warp) kernels::reduce_ll128<Number, Operator, kMean>(job, {warp, warps});
}
// No word of this kind is exchanged as a whole.
template <class Number, class Operator, bool>
void run_blocks(const kernels::WindowUpdate& job) {
  if constexpr (sizeof(typename Number::Stored) <= 8) {
    kernels::window_update<Number, Operator>(job, 0, 1);
  } else {
    std::abort();
  }
}

template <class Number, class Job>
void reduce_numbers(const Job& job, ReduceOp op) {
  using Computed = typename Number::Computed;
  constexpr bool is_bool = std::is_same_v<Number, kernels::Bool>;
  constexpr bool is_ordered = std::is_arithmetic_v<Computed>;
  const auto run = [&]<class Operator, bool kMean>() { run_blocks<Number, Operator, kMean>(job); };
  if constexpr (is_bool) {
    return run.template operator()<kernels::Or, false>();
  } else {
    if (op == ReduceOp::kAvg) return run.template operator()<kernels::Sum, true>();
    if (op == ReduceOp::kProduct) return run.template operator()<kernels::Product, false>();
    if constexpr (is_ordered) {
      if (op == ReduceOp::kMax) return run.template operator()<kernels::Max, false>();
      if (op == ReduceOp::kMin) return run.template operator()<kernels::Min, false>();
    }
    if constexpr (std::is_integral_v<Computed>) {
      if (op == ReduceOp::kBxor) return run.template operator()<kernels::Xor, false>();
    }
    return run.template operator()<kernels::Sum, false>();
  }
}

template <class Job>
void reduce_any(const Job& job, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kUInt8:
      return reduce_numbers<kernels::Integer<unsigned char, unsigned>>(job, op);
    case DType::kInt8:
      return reduce_numbers<kernels::Integer<signed char, unsigned>>(job, op);
    case DType::kUInt16:
      return reduce_numbers<kernels::Integer<unsigned short, unsigned>>(job, op);
    case DType::kInt16:
      return reduce_numbers<kernels::Integer<short, unsigned>>(job, op);
    case DType::kUInt32:
      return reduce_numbers<kernels::Integer<unsigned, unsigned>>(job, op);
    case DType::kInt32:
      return reduce_numbers<kernels::Integer<int, unsigned>>(job, op);
    case DType::kUInt64:
      return reduce_numbers<kernels::Integer<unsigned long long, unsigned long long>>(job, op);
    case DType::kInt64:
      return reduce_numbers<kernels::Integer<long long, unsigned long long>>(job, op);
    case DType::kBool:
      return reduce_numbers<kernels::Bool>(job, op);
    case DType::kFloat16:
      return reduce_numbers<kernels::Float16>(job, op);
    case DType::kBFloat16:
      return reduce_numbers<kernels::BFloat16>(job, op);
    case DType::kFloat32:
      return reduce_numbers<kernels::Plain<float>>(job, op);
    case DType::kFloat64:
      return reduce_numbers<kernels::Plain<double>>(job, op);
    case DType::kComplex64:
      return reduce_numbers<kernels::Complex<float>>(job, op);
    case DType::kComplex128:
      return reduce_numbers<kernels::Complex<double>>(job, op);
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0FNU:
      std::abort();  // no kernel reduces them
  }
}

}  // namespace

void FakeDevice::reduce_ll(const LlExchange& exchange, DType dtype, ReduceOp op, Stream stream) {
  launch([job = as_kernels_see<kernels::Ll>(exchange), dtype, op] { reduce_any(job, dtype, op); }, stream);
}

template <class Number>
void sum_and_norm(const kernels::LlNorm& job) {
  const kernels::Ll& small = job.exchange;
  for (int block = 0; block < small.blocks; ++block) {
    FakeBlock::run([&] {
      kernels::send_units<Number>(small, kernels::turn_of(small, block, small.blocks),
                                  kernels::rows_of<Number>(job, block, small.blocks));
    });
  }
  for (int block = 0; block < small.blocks; ++block)
    FakeBlock::run([&] { kernels::sum_and_norm<Number, kernels::Sum, false>(job, block, small.blocks); });
}

void FakeDevice::sum_and_norm(const NormedSum& given, DType dtype, Stream stream) {
  launch(
      [job = as_kernels_see<kernels::LlNorm>(given), dtype] {
        if (dtype == DType::kBFloat16) return altorch::sum_and_norm<kernels::BFloat16>(job);
        if (dtype == DType::kFloat16) return altorch::sum_and_norm<kernels::Float16>(job);
        if (dtype == DType::kFloat64) return altorch::sum_and_norm<kernels::Plain<double>>(job);
        if (dtype != DType::kFloat32) std::abort();  // no kernel does it
        altorch::sum_and_norm<kernels::Plain<float>>(job);
      },
      stream);
}

void FakeDevice::move_ll(const LlExchange& exchange, Stream stream) {
  launch(
      [job = as_kernels_see<kernels::Ll>(exchange)] {
        post_all<kernels::Plain<unsigned char>>(job);
        for (int block = 0; block < job.blocks; ++block)
          FakeBlock::run([&] { kernels::move_ll(job, block, job.blocks); });
      },
      stream);
}

void FakeDevice::exchange_pairs(const PairExchange& exchange, Stream stream) {
  const auto job = as_kernels_see<kernels::Pairs>(exchange);
  launch(
      [job] {
        const auto each_block = [&](auto&& act) {
          for (int i = 0; i < job.number; ++i) {
            const kernels::Pairs::Pair& pair = job.pairs[i];
            for (int block = 0; pair.numbers && block < pair.blocks; ++block)
              FakeBlock::run([&] { act(pair, kernels::turn_of(job, pair, block)); });
          }
        };
        for (int i = 0; i < job.number; ++i) {
          for (int block = 0; !job.pairs[i].numbers && block < kBlocks; ++block)
            FakeBlock::run([&] { kernels::copy_own(job.pairs[i], block, kBlocks); });
        }
        each_block([](const auto& pair, const auto& turn) { kernels::send_pair(pair, turn); });
        each_block([&](const auto& pair, const auto& turn) {
          kernels::take_pair(job, pair, turn);
          kernels::end_turn(pair, turn);
        });
      },
      stream);
}

void FakeDevice::reduce_two_shot(const TwoShotReduce& given, DType dtype, ReduceOp op, Stream stream) {
  const auto job = as_kernels_see<kernels::TwoShotReduce>(given);
  launch([job, dtype, op] { reduce_any(job, dtype, op); }, stream);
}

void FakeDevice::reduce_one_shot(const OneShotReduce& given, DType dtype, ReduceOp op, Stream stream) {
  const auto job = as_kernels_see<kernels::OneShotReduce>(given);
  launch([job, dtype, op] { reduce_any(job, dtype, op); }, stream);
}

// Rows run side by side, as on a GPU: what is sent waits for what the peer takes.
void FakeDevice::exchange(const Exchange& given, Stream stream) {
  const auto job = as_kernels_see<kernels::Exchange>(given);
  launch(
      [job] {
        std::vector<std::thread> rows;
        for (int peer = 0; peer < job.slots.number; ++peer) {
          if (peer == job.slots.rank) {
            for (int block = 0; block < job.blocks_sent[peer]; ++block)
              FakeBlock::run([&] { kernels::copy_own_exchange(job, block); });
            continue;
          }
          rows.emplace_back([&job, peer] {
            for (int block = 0; block < job.blocks_sent[peer]; ++block)
              FakeBlock::run([&] { kernels::push_exchange(job, peer, block); });
          });
          rows.emplace_back([&job, peer] {
            for (int block = 0; block < job.blocks_taken[peer]; ++block)
              FakeBlock::run([&] { kernels::pull_exchange(job, peer, block); });
          });
        }
        for (std::thread& row : rows) row.join();
      },
      stream);
}

void FakeDevice::reduce_ll128(const Ll128Reduce& given, DType dtype, ReduceOp op, Stream stream) {
  const auto job = as_kernels_see<kernels::Ll128Reduce>(given);
  launch([job, dtype, op] { reduce_any(job, dtype, op); }, stream);
}

// A rank is no further than its own warp: so one after another is as good as side by side, but rows are not.
void FakeDevice::exchange_ll128(const Ll128Exchange& given, Stream stream) {
  const auto job = as_kernels_see<kernels::Ll128Exchange>(given);
  launch(
      [job] {
        std::vector<std::thread> rows;
        for (int peer = 0; peer < job.slots.number; ++peer) {
          rows.emplace_back([&job, peer] {
            const int warps = job.blocks[peer] * kernels::kWarpsOfBlock;
            for (int warp = 0; warp < warps; ++warp) kernels::exchange_rank(job, peer, {warp, warps});
          });
        }
        for (std::thread& row : rows) row.join();
      },
      stream);
}

void FakeDevice::move_window(const WindowMove& given, Stream stream) {
  const auto job = as_kernels_see<kernels::WindowMove>(given);
  launch(
      [job] {
        if (kernels::is_set(job.ended)) return;
        for (int block = 0; block < kBlocks; ++block) kernels::window_move(job, block, kBlocks);
        if (job.raised) kernels::raise(job.count, job.raised);
      },
      stream);
}

void FakeDevice::await_window(const WindowWait& given, Stream stream) {
  const auto job = as_kernels_see<kernels::WindowWait>(given);
  launch(
      [job] {
        const auto waited = kernels::await_signal(job);
        if (!waited.there) kernels::overwrite({job.data, job.bytes, job.pattern, nullptr}, 0, 1);
        kernels::end_wait(job, waited);
      },
      stream);
}

void FakeDevice::update_window(const WindowUpdate& given, DType dtype, ReduceOp op, Stream stream) {
  const auto job = as_kernels_see<kernels::WindowUpdate>(given);
  launch(
      [job, dtype, op] {
        if (!kernels::is_set(job.ended)) reduce_any(job, dtype, op);
      },
      stream);
}

void FakeDevice::change_number(const WindowNumber& given, Stream stream) {
  launch([job = as_kernels_see<kernels::WindowNumber>(given)] { kernels::window_number(job); }, stream);
}

void FakeDevice::poison(const PoisonJob& given, Stream stream) {
  ++poisons_;
  const auto job = as_kernels_see<kernels::Poison>(given);
  launch(
      [job] {
        if (!kernels::is_set(job.aborted)) return;
        for (int block = 0; block < kBlocks; ++block)
          FakeBlock::run([&] { kernels::overwrite(job, block, kBlocks); });
      },
      stream);
}

}  // namespace altorch
