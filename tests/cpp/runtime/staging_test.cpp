// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/staging.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "reduction/reduce.h"
#include "runtime/thread_group.h"
#include "select/decide.h"

namespace altorch {
namespace {

std::vector<std::uint16_t> halves(DType dtype, const std::vector<float>& wide) {
  std::vector<std::uint16_t> half(wide.size());
  narrow(dtype, wide.data(), half.data(), wide.size());
  return half;
}

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

void expect_half_types_added_in_float32(const char* route) {
  setenv("ALTORCH_ROUTE", route, 1);
  constexpr int kSize = 5;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    // Larger than one piece, and odd.
    const std::size_t count = Staging::kPieceBytes / 4 + 1237;
    ThreadGroup group(kSize);
    std::vector<double> sum(count, 0.0);
    for (int rank = 0; rank < kSize; ++rank) {
      const auto half = halves(dtype, random_floats(count, static_cast<unsigned>(rank)));
      std::vector<float> wide(count);
      widen(dtype, half.data(), wide.data(), count);
      for (std::size_t i = 0; i < count; ++i) sum[i] += wide[i];
    }
    std::vector<std::vector<std::uint16_t>> results(kSize);
    const auto errors = group.run([&](int rank, Communicator& communicator) {
      auto values = halves(dtype, random_floats(count, static_cast<unsigned>(rank)));
      bool buffers_free = false;
      communicator.run(all_reduce_of(communicator, values, dtype, ReduceOp::kAvg), buffers_free);
      results[static_cast<std::size_t>(rank)] = values;
    });
    for (const auto& error : errors) EXPECT_EQ(error, "");
    std::vector<float> wide(count);
    widen(dtype, results[0].data(), wide.data(), count);
    const double one_rounding = dtype == DType::kFloat16 ? 1.0 / 1024 : 1.0 / 128;
    for (std::size_t i = 0; i < count; ++i) {
      const double exact = sum[i] / kSize;
      ASSERT_NEAR(wide[i], exact, std::abs(exact) * one_rounding + 1e-5) << i;
    }
    for (int rank = 1; rank < kSize; ++rank) EXPECT_EQ(results[static_cast<std::size_t>(rank)], results[0]);
  }
  unsetenv("ALTORCH_ROUTE");
}

TEST(Staging, AddsHalfTypesInFloat32) { expect_half_types_added_in_float32("all_reduce=ring"); }
TEST(Staging, IsNotWhatAddsHalfTypesInOneStep) { expect_half_types_added_in_float32("all_reduce=pairwise"); }

TEST(Staging, TakesAMeanOfTwoWhoseSumIsTooLarge) {
  for (const char* route : {"all_reduce=ring", "all_reduce=pairwise", "all_reduce=recursive_doubling"}) {
    setenv("ALTORCH_ROUTE", route, 1);
    ThreadGroup group(2);
    const auto errors = group.run([&](int rank, Communicator& communicator) {
      auto values = halves(DType::kFloat16, {60000.0F, rank == 0 ? 60000.0F : 50016.0F, 1.0F});
      bool buffers_free = false;
      communicator.run(all_reduce_of(communicator, values, DType::kFloat16, ReduceOp::kAvg), buffers_free);
      EXPECT_EQ(values, halves(DType::kFloat16, {60000.0F, 55008.0F, 1.0F})) << route;
    });
    EXPECT_EQ(errors, all_good(2));
  }
  unsetenv("ALTORCH_ROUTE");
}

TEST(Staging, IsSparedWhereOneStepCombinesAllRanks) {
  Operation operation;
  operation.kind = OpKind::kAllReduce;
  operation.dtype = DType::kBFloat16;
  const Algorithm* const ring = find_algorithm(OpKind::kAllReduce, "ring");
  const Algorithm* const pairwise = find_algorithm(OpKind::kAllReduce, "pairwise");
  EXPECT_FALSE(needs_staging(operation, 2, ring));
  operation.op = ReduceOp::kAvg;
  EXPECT_TRUE(needs_staging(operation, 2, ring)) << "the sum may be too large";
  EXPECT_FALSE(needs_staging(operation, 2, pairwise));
  operation.op = ReduceOp::kSum;
  EXPECT_TRUE(needs_staging(operation, 3, ring));
  EXPECT_TRUE(needs_staging(operation, 3, nullptr));
  EXPECT_FALSE(needs_staging(operation, 3, pairwise));
  operation.op = ReduceOp::kPremulSum;
  EXPECT_TRUE(needs_staging(operation, 2, pairwise));
}

TEST(Staging, ScalesBeforeItAddsAndLeavesTheInputAlone) {
  constexpr int kSize = 3;
  const std::vector<std::int64_t> counts = {5, 0, 9};
  ThreadGroup group(kSize);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    std::vector<double> input(14),
        output(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]) + 1, -7.0);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<double>(i) + rank;
    const auto before = input;
    Operation operation;
    operation.kind = OpKind::kReduceScatter;
    operation.dtype = DType::kFloat64;
    operation.op = ReduceOp::kPremulSum;
    operation.factor = 0.5;
    operation.input = input.data();
    operation.output = output.data();
    operation.count = counts[static_cast<std::size_t>(rank)];
    operation.input_counts = counts;
    operation.timeout = std::chrono::seconds(20);
    operation.sequence = communicator.next_sequence();
    bool buffers_free = false;
    communicator.run(operation, buffers_free);
    EXPECT_EQ(input, before);
    const std::int64_t first = block_offset(counts, 0, rank);
    for (std::int64_t i = 0; i < operation.count; ++i) {
      EXPECT_EQ(output[static_cast<std::size_t>(i)], 0.5 * (3 * static_cast<double>(first + i) + 3));
    }
    EXPECT_EQ(output.back(), -7.0);
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace altorch
