// The kernels' arithmetic, run by the host, against the engine's own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "device/device.h"
#include "device/kernels/names.h"
#include "device/kernels/numbers.cuh"
#include "device/kernels/reduce.cuh"
#include "reduction/reduce.h"

namespace altorch {
namespace {

static_assert(sizeof(kernels::Reduction) == sizeof(DeviceReduction));
static_assert(offsetof(kernels::Reduction, factor) == offsetof(DeviceReduction, factor));
static_assert(offsetof(kernels::Reduction, copy) == offsetof(DeviceReduction, copy));

std::vector<std::byte> random_part(DType dtype, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> data(count * size_of(dtype));
  if (!is_floating(dtype) && !is_complex(dtype)) {
    for (auto& byte : data) byte = static_cast<std::byte>(random());
    if (dtype == DType::kBool) {
      for (auto& byte : data) byte &= std::byte{1};
    }
    return data;
  }
  const std::size_t numbers = is_complex(dtype) ? 2 * count : count;
  std::normal_distribution<double> normal;
  for (std::size_t i = 0; i < numbers; ++i) {
    double value = normal(random);
    if (i % 31 == 7) value = 0;
    if (i % 97 == 5 && !is_complex(dtype)) value = std::numeric_limits<double>::infinity();
    if (i % 101 == 3 && !is_complex(dtype)) value = std::nan("");
    const auto narrow_value = static_cast<float>(value);
    if (is_half(dtype)) {
      narrow(dtype, &narrow_value, data.data() + 2 * i, 1);
    } else if (dtype == DType::kFloat32 || dtype == DType::kComplex64) {
      std::memcpy(data.data() + 4 * i, &narrow_value, 4);
    } else {
      std::memcpy(data.data() + 8 * i, &value, 8);
    }
  }
  return data;
}

template <class Number, class Operator, bool kMean = false>
void same_as_the_engine(DType dtype, ReduceOp op) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{16}, std::size_t{1003}}) {
    for (const int number : {2, 3, 8}) {
      for (const std::size_t shift : {std::size_t{0}, size_of(dtype)}) {  // aligned to 16 bytes, and not
        std::vector<std::vector<std::byte>> parts;
        std::vector<const void*> pointers;
        DeviceReduction job;
        for (int i = 0; i < number; ++i) {
          parts.push_back(random_part(dtype, count + 1, static_cast<unsigned>(i + 1)));
          pointers.push_back(parts.back().data() + shift);
          job.parts[i] = pointers.back();
        }
        std::vector<std::byte> want(count * size_of(dtype)), output(want), copy(want);
        combine(dtype, op, pointers, want.data(), count);
        job.number = number;
        job.output = output.data();
        job.copy = copy.data();
        job.count = static_cast<std::int64_t>(count);
        kernels::Reduction same;
        std::memcpy(&same, &job, sizeof same);
        for (int thread = 0; thread < 7; ++thread)
          kernels::reduce_strided<Number, Operator, kMean>(same, thread, 7);
        EXPECT_EQ(output, want) << name_of(op) << " of " << name_of(dtype) << ", " << count << " x "
                                << number;
        EXPECT_EQ(copy, want);
      }
    }
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
  std::vector<float> first = {1, 2, 3}, second = {10, 20, 30}, out(3);
  kernels::Reduction job{};
  job.parts[0] = first.data();
  job.parts[1] = second.data();
  job.number = 2;
  job.output = out.data();
  job.count = 3;
  job.scaled = 1;
  job.factor = 0.5;
  kernels::reduce_strided<Plain<float>, Sum, false>(job, 0, 1);
  EXPECT_EQ(out, (std::vector<float>{6, 12, 18}));
}

TEST(Kernels, HaveANameForEveryReduction) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      if (!can_reduce(static_cast<DType>(dtype), static_cast<ReduceOp>(op))) continue;
      const std::string name = reduction_kernel(static_cast<DType>(dtype), static_cast<ReduceOp>(op));
      EXPECT_EQ(name.find("altorch::kernels::reduce<"), 0u) << name;
    }
  }
  EXPECT_NE(kernel_source().find("reduce_strided"), std::string::npos);
}

}  // namespace
}  // namespace altorch
