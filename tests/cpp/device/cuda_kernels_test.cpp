// SPDX-License-Identifier: BSD-3-Clause
// Every kernel on a real GPU, one at a time: no kernel waits for another one, so that tools may
// serialise them (make sanitize-gpu).
#include "device/bulk_cases.h"
#include "device/copy_cases.h"
#include "device/exchange_cases.h"
#include "device/ll128_cases.h"
#include "device/norm_cases.h"
#include "device/reduction_cases.h"
#include "device/token_cases.h"
#include "support/gpu_test.h"

namespace altorch {
namespace {

class CudaKernels : public GpuKernelTest {
 protected:
  void SetUp() override {
    GpuKernelTest::SetUp();
    if (IsSkipped()) return;
    stream_ = gpu().make_stream();
    bench_.emplace(device(), stream_, device().allocate(Bench::kBytes),
                   [this] { return gpu().finish(stream_); });
  }

  // False after a failure, which most often is not the only one.
  bool reduces_as_the_host(DType dtype, ReduceOp op) {
    for (const ReductionCase& reduction : reduction_cases(dtype, op)) {
      const LaidReduction laid(reduction);
      const auto wrong =
          bench_->run(laid.memory(), laid.pinned(), [&](std::byte* memory, std::byte* pinned, Stream stream) {
            device().reduce(laid.job(memory, pinned), dtype, op, stream);
          });
      EXPECT_EQ(wrong.value_or(""), "") << reduction.text();
      if (wrong) return false;
    }
    return true;
  }
  bool exchanges_as_the_host(const std::vector<ExchangeCase>& cases) {
    for (const ExchangeCase& exchange : cases) {
      for (int rank = 0; rank < exchange.number; ++rank) {
        const auto wrong = run_alone(*bench_, exchange, rank, gpu().aborted());
        EXPECT_EQ(wrong.value_or(""), "") << exchange.text(rank);
        if (wrong) return false;
      }
    }
    return true;
  }
  template <class Body>
  void for_every_reduction(Body&& body) {
    for (const DType dtype : reference::all_dtypes()) {
      for (const ReduceOp op : reference::kAllOps) {
        if (can_reduce(dtype, op)) body(dtype, op);
      }
    }
  }

  Stream stream_ = nullptr;
  std::optional<Bench> bench_;
};

TEST_F(CudaKernels, ReduceEveryTypeByEveryOperator) {
  for_every_reduction([&](DType dtype, ReduceOp op) { reduces_as_the_host(dtype, op); });
}

TEST_F(CudaKernels, ExchangeEveryTypeByEveryOperator) {
  for_every_reduction(
      [&](DType dtype, ReduceOp op) { exchanges_as_the_host(reducing_exchanges(dtype, op)); });
}

TEST_F(CudaKernels, Move) { exchanges_as_the_host(moving_exchanges()); }

TEST_F(CudaKernels, ExchangePairs) {
  for (const PairCase& exchange : pair_cases())
    EXPECT_EQ(run_alone(*bench_, exchange, gpu().aborted()).value_or(""), "") << exchange.text();
}

TEST_F(CudaKernels, KnowEveryNumberOfAnExchange) {
  std::vector<ExchangeCase> cases;
  for (const std::uint32_t number : {1u, 2u, 0x80000000u, 0xFFFFFFFFu}) {
    for (const Pattern pattern : {Pattern::kAllReduce, Pattern::kAllGather}) {
      cases.push_back({pattern, DType::kUInt8, ReduceOp::kSum, 3, 9});
      cases.back().exchange = number;
    }
  }
  exchanges_as_the_host(cases);
}

TEST_F(CudaKernels, GoInRounds) {
  for (const BulkCase& bulk : bulk_cases()) {
    for (int rank = 0; rank < bulk.number; ++rank)
      ASSERT_EQ(run_alone(*bench_, bulk, rank, gpu().aborted()).value_or(""), "") << bulk.text(rank);
  }
}

TEST_F(CudaKernels, GoByLl128) {
  for (const Ll128Case& lines : ll128_cases()) {
    for (int rank = 0; rank < lines.number; ++rank)
      ASSERT_EQ(run_alone(*bench_, lines, rank, gpu().aborted()).value_or(""), "") << lines.text(rank);
  }
}

TEST_F(CudaKernels, SumAndNorm) {
  for (const NormCase& norm : norm_cases()) {
    for (int rank = 0; rank < norm.number; ++rank)
      ASSERT_EQ(run_alone(*bench_, norm, rank, gpu().aborted()).value_or(""), "") << norm.text(rank);
  }
}

TEST_F(CudaKernels, CopyBlocks) { EXPECT_EQ(run_copies(*bench_).value_or(""), ""); }

TEST_F(CudaKernels, RouteTokensAndSumTheirRows) {
  for (const TokenCase& tokens : token_cases())
    ASSERT_EQ(run_alone(*bench_, tokens).value_or(""), "") << tokens.text();
}

// Told before they begin, and the others' words never come.
TEST_F(CudaKernels, EndWhenAborted) {
  *gpu().aborted() = 1;
  for (const Pattern pattern : {Pattern::kAllReduce, Pattern::kReduceScatter, Pattern::kAllGather}) {
    const ExchangeCase exchange{pattern, DType::kUInt8, ReduceOp::kSum, 3, 1000};
    ExchangeCase later = exchange;
    later.exchange += 2;
    const LaidExchange laid(later, 1);
    const LaidAreas areas(exchange, 1);
    const auto left =
        bench_->run(laid.memory(), areas.memory(), [&](std::byte* memory, std::byte* pinned, Stream stream) {
          laid.enqueue(device(), laid.job(memory, areas.areas(pinned), gpu().aborted()), stream);
        });
    EXPECT_NE(left.value_or(""), "it did not end by itself");
  }
  const LaidPairs laid(pair_cases().back());
  const DeviceMemory others = device().allocate(4096);  // numbers of other exchanges
  const auto left =
      bench_->run(laid.memory(), laid.areas(), [&](std::byte* memory, std::byte* pinned, Stream stream) {
        PairExchange job = laid.job(memory, pinned, gpu().aborted());
        for (PairExchange::Pair& pair : job.pairs)
          if (pair.numbers) pair.numbers = reinterpret_cast<std::uint32_t*>(others.get());
        device().exchange_pairs(job, stream);
      });
  EXPECT_NE(left.value_or(""), "it did not end by itself");
}

}  // namespace
}  // namespace altorch
