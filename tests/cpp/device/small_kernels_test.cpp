// The kernels of small exchanges, run by the host, one rank at a time.
#include <gtest/gtest.h>

#include "device/bulk_cases.h"
#include "device/exchange_cases.h"
#include "device/line_cases.h"
#include "support/fake_device.h"

namespace altorch {
namespace {

class SmallKernels : public ::testing::Test {
 protected:
  void same_as_the_engine(const std::vector<ExchangeCase>& cases) {
    const std::uint32_t aborted = 0;
    for (const ExchangeCase& exchange : cases) {
      for (int rank = 0; rank < exchange.number; ++rank)
        EXPECT_EQ(run_alone(bench_, exchange, rank, &aborted).value_or(""), "") << exchange.text(rank);
    }
  }
  void goes_in_rounds() {
    const std::uint32_t aborted = 0;
    for (const BulkCase& bulk : bulk_cases()) {
      for (int rank = 0; rank < bulk.number; ++rank)
        EXPECT_EQ(run_alone(bench_, bulk, rank, &aborted).value_or(""), "") << bulk.text(rank);
    }
  }
  void goes_in_lines() {
    const std::uint32_t aborted = 0;
    for (const LineCase& lines : line_cases()) {
      for (int rank = 0; rank < lines.number; ++rank)
        EXPECT_EQ(run_alone(bench_, lines, rank, &aborted).value_or(""), "") << lines.text(rank);
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

TEST_F(SmallKernels, GoInRoundsWhereCallsAreLarge) { goes_in_rounds(); }

TEST_F(SmallKernels, GoInLines) { goes_in_lines(); }

TEST_F(SmallKernels, Move) { same_as_the_engine(moving_exchanges()); }

}  // namespace
}  // namespace altorch
