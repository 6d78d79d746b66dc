// SPDX-License-Identifier: BSD-3-Clause
// The kernels of small exchanges, run by the host, one rank at a time.
#include <gtest/gtest.h>

#include "device/bulk_cases.h"
#include "device/exchange_cases.h"
#include "device/ll128_cases.h"
#include "device/norm_cases.h"
#include "support/fake_device.h"

namespace altorch {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class SmallKernels : public ::testing::Test {
 protected:
  template <class Case>
  void same_as_the_engine(const std::vector<Case>& cases) {
    const std::uint32_t aborted = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Case& each = cases[i];
      for (int rank = 0; rank < each.number; ++rank) {
        // A sanitized run takes ten times as long: there, the cases take the ranks in turns.
        if (kSanitized && rank != static_cast<int>(i) % each.number) continue;
        EXPECT_EQ(run_alone(bench_, each, rank, &aborted).value_or(""), "") << each.text(rank);
      }
    }
  }
  void exchanges_pairs() {
    const std::uint32_t aborted = 0;
    for (const PairCase& exchange : pair_cases())
      EXPECT_EQ(run_alone(bench_, exchange, &aborted).value_or(""), "") << exchange.text();
  }

 private:
  FakeDevice device_{{.longest_delay = std::chrono::microseconds(0)}};
  const Stream stream_ = device_.make_stream();
  Bench bench_{device_, stream_, device_.pin(Bench::kBytes), [this] { return device_.synchronize(stream_); }};
};

TEST_F(SmallKernels, Reduce) {
  constexpr std::pair<DType, ReduceOp> some[] = {
      {DType::kFloat32, ReduceOp::kSum},        {DType::kFloat32, ReduceOp::kPremulSum},
      {DType::kBFloat16, ReduceOp::kAvg},       {DType::kFloat16, ReduceOp::kPremulSum},
      {DType::kUInt8, ReduceOp::kSum},          {DType::kInt32, ReduceOp::kMax},
      {DType::kInt64, ReduceOp::kBxor},         {DType::kBool, ReduceOp::kSum},
      {DType::kComplex128, ReduceOp::kProduct},
  };
  for (const auto& [dtype, op] : some) same_as_the_engine(reducing_exchanges(dtype, op));
}

TEST_F(SmallKernels, ExchangePairs) { exchanges_pairs(); }

TEST_F(SmallKernels, GoInRoundsWhereCallsAreLarge) { same_as_the_engine(bulk_cases()); }

TEST_F(SmallKernels, GoByLl128) { same_as_the_engine(ll128_cases()); }

TEST_F(SmallKernels, SumAndNorm) { same_as_the_engine(norm_cases()); }

// No peer may receive what an aborted rank computes in place in its next call: wrong integers look
// like right ones.
TEST_F(SmallKernels, AnAbortedWarpPushesNoMore) {
  constexpr std::int64_t kCount = 1000;
  constexpr int kRanks = 2, kPoison = 0x01818181;
  const std::uint32_t aborted = 1;
  FakeDevice device({.longest_delay = std::chrono::microseconds(0)});
  const Stream stream = device.make_stream();
  constexpr std::int64_t kWords = Ll128Case::kPlace / 8, kNumbers = kRanks * Ll128Case::kWarps;
  std::vector<std::vector<std::uint64_t>> slots(kRanks, std::vector<std::uint64_t>(kWords)),
      numbers(kRanks, std::vector<std::uint64_t>(kNumbers));
  std::vector<std::vector<int>> vectors = {std::vector<int>(kCount, 10), std::vector<int>(kCount, 11)};
  for (const int rank : {0, 0, 1, 1}) {  // the second comes late, twice
    const auto index = static_cast<std::size_t>(rank);
    Ll128Reduce job;
    job.slots.theirs[1 - rank] = slots[1 - index].data();
    job.slots.mine[1 - rank] = slots[index].data();
    job.slots.numbers = numbers[index].data();
    job.slots.aborted = &aborted;
    job.slots.rank = rank;
    job.slots.number = kRanks;
    job.slots.warps = Ll128Case::kWarps;
    job.input = job.output = vectors[index].data();
    job.counts[0] = job.counts[1] = kCount;
    job.poison = 0x0181818101818181u;
    device.reduce_ll128(job, DType::kInt32, ReduceOp::kSum, stream);
    ASSERT_TRUE(device.synchronize(stream));
  }
  EXPECT_EQ(vectors[0], std::vector<int>(kCount, kPoison));
  EXPECT_EQ(vectors[1], std::vector<int>(kCount, kPoison)) << "made of what was aborted";
}

TEST_F(SmallKernels, Move) { same_as_the_engine(moving_exchanges()); }

}  // namespace
}  // namespace altorch
