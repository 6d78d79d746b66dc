// SPDX-License-Identifier: BSD-3-Clause
// The kernels' arithmetic, run by the host, against the engine's own.
#include <gtest/gtest.h>

#include <set>

#include "device/compiled_ahead.h"
#include "device/kernels/jobs.cuh"
#include "device/kernels/names.h"
// clang-format off
#include "device/kernels/numbers.cuh"
#include "device/kernels/exact.cuh"
#include "device/kernels/reduce.cuh"
// clang-format on
#include "device/reduction_cases.h"

namespace altorch {
namespace {

// As 7 threads, one after another.
template <class Number, class Operator, bool kMean>
void reduce_on_host(const DeviceReduction& job) {
  for (int thread = 0; thread < 7; ++thread) kernels::reduce_strided<Number, Operator, kMean>(job, thread, 7);
}

template <class Number, class Operator, bool kMean = false>
void same_as_the_engine(DType dtype, ReduceOp op) {
  for (const ReductionCase& reduction : reduction_cases(dtype, op)) {
    const LaidReduction laid(reduction);
    Bytes memory = laid.memory().before(), pinned = laid.pinned().before();
    reduce_on_host<Number, Operator, kMean>(
        laid.job(reinterpret_cast<std::byte*>(memory.data()), reinterpret_cast<std::byte*>(pinned.data())));
    EXPECT_EQ(laid.memory().difference(memory.data()).value_or(""), "") << reduction.text();
    EXPECT_EQ(laid.pinned().difference(pinned.data()).value_or(""), "") << reduction.text();
  }
}

using namespace kernels;  // NOLINT

TEST(Kernels, AddAndAverageAsTheEngineDoes) {
  same_as_the_engine<Plain<float>, Sum>(DType::kFloat32, ReduceOp::kSum);
  same_as_the_engine<Plain<double>, Sum>(DType::kFloat64, ReduceOp::kSum);
  same_as_the_engine<BFloat16, Sum>(DType::kBFloat16, ReduceOp::kSum);
  same_as_the_engine<Float16, Sum>(DType::kFloat16, ReduceOp::kSum);
  same_as_the_engine<Integer<int, unsigned>, Sum>(DType::kInt32, ReduceOp::kSum);
  same_as_the_engine<Integer<signed char, unsigned>, Sum>(DType::kInt8, ReduceOp::kSum);
  same_as_the_engine<Integer<unsigned long long, unsigned long long>, Sum>(DType::kUInt64, ReduceOp::kSum);
  same_as_the_engine<kernels::Complex<float>, Sum>(DType::kComplex64, ReduceOp::kSum);
  same_as_the_engine<kernels::Bool, Or>(DType::kBool, ReduceOp::kSum);
  same_as_the_engine<Plain<float>, Sum, true>(DType::kFloat32, ReduceOp::kAvg);
  same_as_the_engine<BFloat16, Sum, true>(DType::kBFloat16, ReduceOp::kAvg);
  same_as_the_engine<Integer<short, unsigned>, Sum, true>(DType::kInt16, ReduceOp::kAvg);
  same_as_the_engine<kernels::Complex<double>, Sum, true>(DType::kComplex128, ReduceOp::kAvg);
}

TEST(Kernels, MultiplyCompareAndCombineBitsAsTheEngineDoes) {
  same_as_the_engine<Plain<float>, kernels::Product>(DType::kFloat32, ReduceOp::kProduct);
  same_as_the_engine<kernels::Complex<double>, kernels::Product>(DType::kComplex128, ReduceOp::kProduct);
  same_as_the_engine<Integer<unsigned short, unsigned>, kernels::Product>(DType::kUInt16, ReduceOp::kProduct);
  same_as_the_engine<Plain<float>, kernels::Min>(DType::kFloat32, ReduceOp::kMin);
  same_as_the_engine<BFloat16, kernels::Max>(DType::kBFloat16, ReduceOp::kMax);
  same_as_the_engine<Integer<long long, unsigned long long>, kernels::Max>(DType::kInt64, ReduceOp::kMax);
  same_as_the_engine<Integer<unsigned char, unsigned>, And>(DType::kUInt8, ReduceOp::kBand);
  same_as_the_engine<Integer<int, unsigned>, Xor>(DType::kInt32, ReduceOp::kBxor);
}

TEST(Kernels, ScaleOnePart) {
  same_as_the_engine<Plain<float>, Sum>(DType::kFloat32, ReduceOp::kPremulSum);
  same_as_the_engine<BFloat16, Sum>(DType::kBFloat16, ReduceOp::kPremulSum);
  same_as_the_engine<kernels::Complex<float>, Sum>(DType::kComplex64, ReduceOp::kPremulSum);
}

TEST(Kernels, HaveANameForEveryReduction) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      if (!can_reduce(static_cast<DType>(dtype), static_cast<ReduceOp>(op))) continue;
      const Kernel kernel = reduction_kernel(static_cast<DType>(dtype), static_cast<ReduceOp>(op));
      EXPECT_EQ(kernel.symbol.find("altorch_reduce_"), 0u) << kernel.symbol;
      EXPECT_NE(kernel.definition.find(" " + kernel.symbol + "("), std::string::npos) << kernel.definition;
    }
  }
  for (int op = 0; op < kBinaryOpCount; ++op) {
    const std::string declared = std::string("struct ") + name_of(static_cast<BinaryOp>(op)) + " {";
    EXPECT_NE(kernel_source().find(declared), std::string::npos) << "numbers.cuh lacks " << declared;
  }
  EXPECT_NE(kernel_source().find("reduce_strided"), std::string::npos);
}

TEST(Kernels, CompiledAheadHaveNamesOfTheirOwn) {
  std::set<std::string> symbols;
  for (const Kernel& kernel : kernels_ahead())
    EXPECT_TRUE(symbols.insert(kernel.symbol).second) << kernel.symbol;
  EXPECT_TRUE(symbols.contains(ll_reduction_kernel(DType::kBFloat16, ReduceOp::kSum).symbol));
  const auto image = kernels_compiled_ahead();
  if (image.empty()) GTEST_SKIP() << "the build had no nvcc";
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  EXPECT_GT(text.size(), 10'000u);
}

}  // namespace
}  // namespace altorch
