// SPDX-License-Identifier: BSD-3-Clause
// The kernels, run by the fake device: the very source that NVRTC compiles, in blocks of a few
// threads.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

// Yields, and sleeps in every fourth turn: with many threads to a core, yields alone hand it round
// among those that wait.
void pause_of_fake() {
  static thread_local unsigned turns = 0;
  if (++turns % 4 != 0) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(10));
}

}  // namespace

#define AL_PAUSE() pause_of_fake()
// In the order in which they go to NVRTC.
// clang-format off
#include "support/fake_block.h"
#include "device/kernels/jobs.cuh"
#include "device/kernels/numbers.cuh"
#include "device/kernels/exact.cuh"
#include "device/kernels/reduce.cuh"
#include "device/kernels/ll.cuh"
#include "device/kernels/pairs.cuh"
#include "device/kernels/poison.cuh"
#include "device/kernels/rounds.cuh"
#include "device/kernels/parts.cuh"
#include "device/kernels/copies.cuh"
#include "device/kernels/one_shot.cuh"
#include "device/kernels/two_shot.cuh"
#include "device/kernels/exchange.cuh"
#include "device/kernels/ll128.cuh"
#include "device/kernels/ll128_reduce.cuh"
#include "device/kernels/ll128_all_peers.cuh"
#include "device/kernels/ll128_two_shot.cuh"
#include "device/kernels/ll128_exchange.cuh"
#include "device/kernels/quantized.cuh"
#include "device/kernels/quantized_chunks.cuh"
#include "device/kernels/ll128_quantized.cuh"
#include "device/kernels/ll_norm.cuh"
#include "device/kernels/token_slots.cuh"
#include "device/kernels/token_rows.cuh"
#include "device/kernels/window.cuh"
// clang-format on
#include "support/fake_device.h"

namespace altorch {
namespace {

constexpr int kBlocks = 2;  // of a kernel that waits for no peer

// Blocks run side by side on a GPU: here each posts before any waits.
template <class Number>
void post_all(const LlExchange& job) {
  for (int block = 0; block < job.blocks; ++block)
    FakeBlock::run([&] { kernels::send_units<Number>(job, kernels::turn_of(job, block, job.blocks)); });
}

// The operator is chosen while a kernel runs, not when it is compiled: a kernel is compiled twice a
// type instead of five times, in half of the time that this file takes.
struct ChosenOperator {
  static inline thread_local ReduceOp op = ReduceOp::kSum;

  template <class Number, class T>
  static T apply(T a, T b) {
    if constexpr (std::is_same_v<Number, kernels::Bool>) {
      return kernels::Or::apply<Number>(a, b);
    } else {
      if constexpr (
          !requires { Number::add(a, b); } || requires { Number::multiply(a, b); }) {
        if (op == ReduceOp::kProduct) return kernels::Product::apply<Number>(a, b);
      }
      if constexpr (std::is_arithmetic_v<T>) {
        if (op == ReduceOp::kMax) return kernels::Max::apply<Number>(a, b);
        if (op == ReduceOp::kMin) return kernels::Min::apply<Number>(a, b);
      }
      if constexpr (std::is_integral_v<T>) {
        if (op == ReduceOp::kBxor) return kernels::Xor::apply<Number>(a, b);
      }
      return kernels::Sum::apply<Number>(a, b);
    }
  }
};

template <class Act>
void run_block(ReduceOp op, const Act& act) {
  FakeBlock::run([&] {
    ChosenOperator::op = op;
    act();
  });
}

template <class Number, bool kMean>
void run_blocks(const LlExchange& job, ReduceOp op) {
  post_all<Number>(job);
  for (int block = 0; block < job.blocks; ++block)
    run_block(op, [&] { kernels::reduce_ll<Number, ChosenOperator, kMean>(job, block, job.blocks); });
}
template <class Number, bool kMean>
void run_blocks(const TwoShotReduce& job, ReduceOp op) {
  for (int block = 0; block < job.blocks; ++block)
    run_block(op, [&] { kernels::reduce_two_shot<Number, ChosenOperator, kMean>(job, block); });
}
template <class Number, bool kMean>
void run_blocks(const OneShotReduce& job, ReduceOp op) {
  std::thread pushes([&job] {
    for (int block = 0; block < job.blocks; ++block)
      FakeBlock::run([&] { kernels::push_one_shot<Number>(job, block); });
  });
  for (int block = 0; block < job.blocks; ++block)
    run_block(op, [&] { kernels::pull_one_shot<Number, ChosenOperator, kMean>(job, block); });
  pushes.join();
}
template <class Number, bool kMean>
void run_blocks(const Ll128Reduce& job, ReduceOp op) {
  ChosenOperator::op = op;
  const int warps = job.blocks * kernels::kWarpsOfBlock;
  for (int warp = 0; warp < warps; ++warp)
    kernels::reduce_ll128<Number, ChosenOperator, kMean>(job, {warp, warps});
}
// No word of this kind is exchanged as a whole.
template <class Number, bool>
void run_blocks(const WindowUpdate& job, ReduceOp op) {
  if constexpr (sizeof(typename Number::Stored) <= 8) {
    ChosenOperator::op = op;
    kernels::window_update<Number, ChosenOperator>(job, 0, 1);
  } else {
    std::abort();
  }
}

// Calls act(Number(), std::type_identity<Code>()).
template <class Act>
void with_quantized_types(DType dtype, bool float8, const Act& act) {
  const auto with_code = [&](auto number) {
    if (float8) return act(number, std::type_identity<kernels::Float8Code>());
    act(number, std::type_identity<kernels::Int8Code>());
  };
  if (dtype == DType::kBFloat16) return with_code(kernels::BFloat16());
  if (dtype == DType::kFloat16) return with_code(kernels::Float16());
  if (dtype != DType::kFloat32) std::abort();  // no kernel does it
  with_code(kernels::Plain<float>());
}

void reduce_in_8_bits(const Ll128Reduce& job, DType dtype, ReduceOp op) {
  with_quantized_types(dtype, is_float8_sum(op), [&](auto number, auto code) {
    using Number = kernels::Quantized<decltype(number), typename decltype(code)::type>;
    is_mean(op) ? run_blocks<Number, true>(job, op) : run_blocks<Number, false>(job, op);
  });
}

template <class Number, class Job>
void reduce_numbers(const Job& job, ReduceOp op) {
  if constexpr (!std::is_same_v<Number, kernels::Bool>) {
    if (op == ReduceOp::kAvg) return run_blocks<Number, true>(job, op);
  }
  run_blocks<Number, false>(job, op);
}

template <class Job>
void reduce_exactly(const Job& job, DType dtype, ReduceOp op) {
  const ReduceOp plain = op == ReduceOp::kExactAvg ? ReduceOp::kAvg : ReduceOp::kSum;
  switch (dtype) {
    case DType::kFloat16:
      return reduce_numbers<kernels::ExactFloat16>(job, plain);
    case DType::kBFloat16:
      return reduce_numbers<kernels::ExactBFloat16>(job, plain);
    case DType::kFloat32:
      return reduce_numbers<kernels::ExactFloat32>(job, plain);
    case DType::kFloat8E4M3FN:
      return reduce_numbers<kernels::ExactFloat8E4M3FN>(job, plain);
    case DType::kFloat8E5M2:
      return reduce_numbers<kernels::ExactFloat8E5M2>(job, plain);
    default:
      return reduce_numbers<kernels::ExactFloat64>(job, plain);
  }
}

template <class Job>
void reduce_any(const Job& job, DType dtype, ReduceOp op) {
  if constexpr (!std::is_same_v<Job, WindowUpdate>) {
    if (is_exact(op)) return reduce_exactly(job, dtype, op);
  }
  if constexpr (std::is_same_v<Job, Ll128Reduce>) {
    if (is_quantized(op)) return reduce_in_8_bits(job, dtype, op);
  }
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
      return run_blocks<kernels::Float8E4M3FN, false>(job, op);
    case DType::kFloat8E5M2:
      return run_blocks<kernels::Float8E5M2, false>(job, op);
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0FNU:
      std::abort();  // no kernel reduces them
  }
}

}  // namespace

void FakeDevice::reduce_ll(const LlExchange& exchange, DType dtype, ReduceOp op, Stream stream) {
  launch([=] { reduce_any(exchange, dtype, op); }, stream);
}

template <class Number>
void sum_and_norm(const NormedSum& job) {
  const LlExchange& small = job.exchange;
  for (int block = 0; block < small.blocks; ++block) {
    FakeBlock::run([&] {
      kernels::send_units<Number>(small, kernels::turn_of(small, block, small.blocks),
                                  kernels::rows_of<Number>(job, block, small.blocks));
    });
  }
  for (int block = 0; block < small.blocks; ++block)
    FakeBlock::run([&] { kernels::sum_and_norm<Number, kernels::Sum, false>(job, block, small.blocks); });
}

void FakeDevice::sum_and_norm(const NormedSum& job, DType dtype, Stream stream) {
  launch(
      [job, dtype] {
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
      [job = exchange] {
        post_all<kernels::Plain<unsigned char>>(job);
        for (int block = 0; block < job.blocks; ++block)
          FakeBlock::run([&] { kernels::move_ll(job, block, job.blocks); });
      },
      stream);
}

void FakeDevice::exchange_pairs(const PairExchange& job, Stream stream) {
  launch(
      [job] {
        const auto each_block = [&](auto&& act) {
          for (int i = 0; i < job.number; ++i) {
            const PairExchange::Pair& pair = job.pairs[i];
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

void FakeDevice::reduce_two_shot(const TwoShotReduce& job, DType dtype, ReduceOp op, Stream stream) {
  launch([job, dtype, op] { reduce_any(job, dtype, op); }, stream);
}

void FakeDevice::reduce_one_shot(const OneShotReduce& job, DType dtype, ReduceOp op, Stream stream) {
  launch([job, dtype, op] { reduce_any(job, dtype, op); }, stream);
}

void FakeDevice::change_chunks(const QuantizedChunks& job, DType dtype, Stream stream) {
  launch(
      [job, dtype] {
        with_quantized_types(dtype, job.float8 != 0, [&](auto number, auto code) {
          constexpr int kThreads = 3;
          for (int thread = 0; thread < kThreads; ++thread)
            kernels::change_chunks<decltype(number), typename decltype(code)::type>(job, thread, kThreads);
        });
      },
      stream);
}

void FakeDevice::copy_blocks(const BlockCopies& job, Stream stream) {
  // A GPU makes all copies at once.
  for (int copy = 0; copy < job.number; ++copy) {
    for (int other = 0; other < job.number; ++other) {
      const auto apart = [&, begin = job.copies[copy].to](const void* place) {
        const auto* const one = static_cast<const char*>(begin);
        const auto* const two = static_cast<const char*>(place);
        return one + job.copies[copy].bytes <= two || two + job.copies[other].bytes <= one;
      };
      EXPECT_TRUE(apart(job.copies[other].from))
          << "copy " << copy << " writes what copy " << other << " reads";
      EXPECT_TRUE(copy == other || apart(job.copies[other].to)) << "copies " << copy << " and " << other;
    }
  }
  launch(
      [job] {
        constexpr int kPieces = 3;
        for (int copy = 0; copy < job.number; ++copy) {
          for (int piece = 0; piece < kPieces; ++piece) kernels::copy_piece(job, copy, piece, kPieces);
        }
      },
      stream);
}

void FakeDevice::pack_indices(const IndexPack& job, Stream stream) {
  launch(
      [job] {
        for (int thread = 0; thread < 3; ++thread) kernels::pack_indices(job, thread, 3);
      },
      stream);
}

void FakeDevice::find_slots(const TokenTable& table, Stream stream) {
  launch(
      [table] {
        for (int block = 0; block < table.local + table.flat; ++block)
          FakeBlock::run([&] { kernels::find_slots(table, block); });
      },
      stream);
}

namespace {

// Calls act(row, slice) for each piece of each row, and each thread.
template <class Act>
void for_each_piece(int rows, const Act& act) {
  constexpr int kThreads = 3, kPieces = 2;
  for (int row = 0; row < rows; ++row) {
    for (int piece = 0; piece < kPieces; ++piece) {
      for (int thread = 0; thread < kThreads; ++thread)
        act(row, kernels::RowSlice{thread, kThreads, piece, kPieces});
    }
  }
}

}  // namespace

void FakeDevice::pack_rows(const RowPack& job, Stream stream) {
  launch(
      [job] {
        for_each_piece(job.count,
                       [&](int row, const kernels::RowSlice& slice) { kernels::pack_rows(job, row, slice); });
      },
      stream);
}

void FakeDevice::scatter_rows(const RowScatter& job, Stream stream) {
  launch(
      [job] {
        for_each_piece(
            job.table.ranks * job.count + job.unused,
            [&](int row, const kernels::RowSlice& slice) { kernels::scatter_rows(job, row, slice); });
      },
      stream);
}

void FakeDevice::sum_rows(const RowSum& job, DType dtype, Stream stream) {
  launch(
      [job, dtype] {
        for_each_piece(job.table.ranks * job.count, [&](int row, const kernels::RowSlice& slice) {
          if (dtype == DType::kBFloat16) return kernels::sum_rows<kernels::BFloat16>(job, row, slice);
          if (dtype == DType::kFloat16) return kernels::sum_rows<kernels::Float16>(job, row, slice);
          if (dtype == DType::kFloat64) return kernels::sum_rows<kernels::Plain<double>>(job, row, slice);
          if (dtype != DType::kFloat32) std::abort();  // no kernel does it
          kernels::sum_rows<kernels::Plain<float>>(job, row, slice);
        });
      },
      stream);
}

// Rows run side by side, as on a GPU: what is sent waits for what the peer takes.
void FakeDevice::exchange(const Exchange& job, Stream stream) {
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

void FakeDevice::reduce_ll128(const Ll128Reduce& job, DType dtype, ReduceOp op, Stream stream) {
  launch([job, dtype, op] { reduce_any(job, dtype, op); }, stream);
}

// A rank is no further than its own warp: so one after another is as good as side by side, but rows
// are not.
void FakeDevice::exchange_ll128(const Ll128Exchange& job, Stream stream) {
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

namespace {

// Moves one number, which may be that of a flag. On a GPU the end of a kernel orders it behind what
// came before on the stream; here that takes a release.
bool moves_a_flag(const WindowMove& job) {
  using Number = std::uint32_t;
  const bool aligned = reinterpret_cast<std::uintptr_t>(job.to) % sizeof(Number) == 0;
  if (job.rows != 1 || job.row_bytes != sizeof(Number) || !aligned) return false;
  Number number = 0;
  std::memcpy(&number, job.from, sizeof number);
  std::atomic_ref(*static_cast<Number*>(job.to)).store(number, std::memory_order_release);
  return true;
}

}  // namespace

void FakeDevice::move_window(const WindowMove& job, Stream stream) {
  launch(
      [job] {
        if (kernels::is_set(job.ended)) return;
        if (!moves_a_flag(job)) {
          for (int block = 0; block < kBlocks; ++block) kernels::window_move(job, block, kBlocks);
        }
        if (job.raised) kernels::raise(job.count, job.raised);
      },
      stream);
}

void FakeDevice::await_window(const WindowWait& job, Stream stream) {
  launch(
      [job] {
        const auto waited = kernels::await_signal(job);
        if (!waited.there) kernels::overwrite({job.data, job.bytes, job.pattern, nullptr}, 0, 1);
        kernels::end_wait(job, waited);
      },
      stream);
}

void FakeDevice::update_window(const WindowUpdate& job, DType dtype, ReduceOp op, Stream stream) {
  launch(
      [job, dtype, op] {
        if (!kernels::is_set(job.ended)) reduce_any(job, dtype, op);
      },
      stream);
}

void FakeDevice::change_number(const WindowNumber& job, Stream stream) {
  launch([job] { kernels::window_number(job); }, stream);
}

void FakeDevice::poison(const PoisonJob& job, Stream stream) {
  ++poisons_;
  launch(
      [job] {
        if (!kernels::is_set(job.aborted)) return;
        while (job.released && !kernels::is_set(job.released)) pause_of_fake();
        for (int block = 0; block < kBlocks; ++block)
          FakeBlock::run([&] { kernels::overwrite(job, block, kBlocks); });
      },
      stream);
}

}  // namespace altorch
