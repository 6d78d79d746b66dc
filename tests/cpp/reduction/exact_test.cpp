// SPDX-License-Identifier: BSD-3-Clause
// Exact sums of every instruction set, and of the GPU kernels' arithmetic, against integers of any
// length.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>

#include "base/error.h"
#include "base/reduce_op.h"
#include "device/kernels/jobs.cuh"
// clang-format off
#include "device/kernels/numbers.cuh"
#include "device/kernels/exact.cuh"
#include "device/kernels/reduce.cuh"
// clang-format on
#include "reduction/exact_reference.h"
#include "reduction/kernel_table.h"
#include "reduction/reduce.h"

namespace altorch {
namespace {

constexpr DType kTypes[] = {DType::kFloat16, DType::kBFloat16,     DType::kFloat32,
                            DType::kFloat64, DType::kFloat8E4M3FN, DType::kFloat8E5M2};

// `count` elements of each of `number` parts.
struct ExactCase {
  DType dtype;
  std::vector<std::vector<unsigned char>> parts;
  std::vector<std::vector<std::uint64_t>> values;  // of each element, by part

  ExactCase(DType dtype, std::size_t number, std::size_t count, std::mt19937_64& random) : dtype(dtype) {
    parts.assign(number, std::vector<unsigned char>(count * size_of(dtype)));
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(reference::difficult_values(dtype, number, random));
      for (std::size_t part = 0; part < number; ++part) put(parts[part], i, values[i][part]);
    }
  }
  void put(std::vector<unsigned char>& part, std::size_t i, std::uint64_t bits) const {
    std::memcpy(part.data() + i * size_of(dtype), &bits, size_of(dtype));
  }
  // Computed once: the reference is slow under sanitizers.
  const std::vector<unsigned char>& expected(bool mean) const {
    std::vector<unsigned char>& sums = mean ? means_ : sums_;
    if (!sums.empty()) return sums;
    sums.resize(parts[0].size());
    const auto divisor = static_cast<std::uint32_t>(mean ? parts.size() : 1);
    for (std::size_t i = 0; i < values.size(); ++i)
      put(sums, i, reference::exact_sum(dtype, values[i], divisor));
    return sums;
  }
  std::vector<const void*> pointers() const {
    std::vector<const void*> all;
    for (const auto& part : parts) all.push_back(part.data());
    return all;
  }
  // The first element that differs, with its values; empty: none.
  std::string difference(const std::vector<unsigned char>& made, bool mean) const {
    const auto& sums = expected(mean);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t at = i * size_of(dtype);
      std::uint64_t is = 0, should = 0;
      std::memcpy(&is, made.data() + at, size_of(dtype));
      std::memcpy(&should, sums.data() + at, size_of(dtype));
      if (is == should) continue;
      char text[64];
      std::snprintf(text, sizeof text, " is %llx, not %llx, of", static_cast<unsigned long long>(is),
                    static_cast<unsigned long long>(should));
      std::string all = std::string(name_of(dtype)) + (mean ? " mean " : " sum ") + std::to_string(i) + text;
      for (const std::uint64_t value : values[i]) {
        std::snprintf(text, sizeof text, " %llx", static_cast<unsigned long long>(value));
        all += text;
      }
      return all;
    }
    return "";
  }

 private:
  mutable std::vector<unsigned char> sums_, means_;
};

TEST(Exact, SumsAndMeansAreRoundedOnceByEveryInstructionSet) {
  std::mt19937_64 random(45);
  for (const DType dtype : kTypes) {
    for (const std::size_t number : {2, 3, 4, 5, 8, 13, 16, 64}) {
      const ExactCase given(dtype, number, number > 16 ? 20 : 100, random);
      for (const auto* table : reduction::usable_kernel_tables()) {
        for (const bool mean : {false, true}) {
          std::vector<unsigned char> made(given.parts[0].size());
          table->exact[static_cast<std::size_t>(dtype)](given.pointers(), mean, made.data(),
                                                        given.values.size());
          ASSERT_EQ(given.difference(made, mean), "") << table->name << ", " << number << " parts";
        }
      }
    }
  }
}

TEST(Exact, OrderDoesNotMatter) {
  std::mt19937_64 random(46);
  for (const DType dtype : kTypes) {
    ExactCase given(dtype, 7, 300, random);
    std::vector<unsigned char> first(given.parts[0].size()), again = first;
    combine(dtype, ReduceOp::kExactSum, given.pointers(), first.data(), given.values.size());
    for (int turn = 0; turn < 5; ++turn) {
      std::shuffle(given.parts.begin(), given.parts.end(), random);
      combine(dtype, ReduceOp::kExactSum, given.pointers(), again.data(), given.values.size());
      ASSERT_EQ(first, again) << name_of(dtype);
    }
  }
}

TEST(Exact, OverwritesAnyPartAtAnyAddressAndLength) {
  std::mt19937_64 random(47);
  for (const DType dtype : kTypes) {
    for (const std::size_t count : {0, 1, 7, 257}) {  // the last in two blocks
      const ExactCase given(dtype, 3, count, random);
      for (std::size_t over = 0; over < 3; ++over) {
        const std::size_t bytes = given.parts[0].size();
        std::vector<unsigned char> memory(bytes + 10, 0xA5);
        unsigned char* const out = memory.data() + 1;
        if (bytes > 0) std::memcpy(out, given.parts[over].data(), bytes);
        auto pointers = given.pointers();
        pointers[over] = out;
        combine(dtype, ReduceOp::kExactAvg, pointers, out, count);
        EXPECT_EQ(given.difference({out, out + bytes}, true), "") << count << " elements over part " << over;
        for (std::size_t i = bytes + 1; i < memory.size(); ++i) ASSERT_EQ(int{memory[i]}, 0xA5);
      }
    }
  }
}

TEST(Exact, TheThreadsOwnFloatingPointSettingsDoNotMatter) {
  std::mt19937_64 random(48);
  for (const DType dtype : kTypes) {
    const ExactCase given(dtype, 5, 70, random);
    std::vector<unsigned char> made(given.parts[0].size());
    std::fesetround(FE_UPWARD);
    std::feraiseexcept(FE_INEXACT);
    combine(dtype, ReduceOp::kExactSum, given.pointers(), made.data(), given.values.size());
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(given.difference(made, false), "");
  }
}

// As 7 threads, one after another.
template <class Number, bool kMean>
void expect_exact_on_device(DType dtype, std::initializer_list<std::size_t> numbers) {
  std::mt19937_64 random(49);
  for (const std::size_t number : numbers) {
    const ExactCase given(dtype, number, 61, random);
    std::vector<unsigned char> made(given.parts[0].size());
    DeviceReduction job;
    for (const void* part : given.pointers()) job.parts[job.number++] = part;
    job.output = made.data();
    job.count = static_cast<std::int64_t>(given.values.size());
    for (int thread = 0; thread < 7; ++thread)
      kernels::reduce_strided<Number, kernels::ExactSum, kMean>(job, thread, 7);
    EXPECT_EQ(given.difference(made, kMean), "") << number << " parts";
  }
}
template <class Number>
void expect_exact_sums_and_means_on_device(DType dtype) {
  expect_exact_on_device<Number, false>(dtype, {2, 3, 8, 16});
  expect_exact_on_device<Number, true>(dtype, {2, 3, 8, 16});
  using OfTwo = typename kernels::TwoRankNumber<Number>::Type;
  expect_exact_on_device<OfTwo, false>(dtype, {2, 2, 2});
  expect_exact_on_device<OfTwo, true>(dtype, {2, 2, 2});
}
TEST(Exact, KernelsForGpusGiveTheSame) {
  expect_exact_sums_and_means_on_device<kernels::ExactFloat16>(DType::kFloat16);
  expect_exact_sums_and_means_on_device<kernels::ExactBFloat16>(DType::kBFloat16);
  expect_exact_sums_and_means_on_device<kernels::ExactFloat32>(DType::kFloat32);
  expect_exact_sums_and_means_on_device<kernels::ExactFloat64>(DType::kFloat64);
  expect_exact_sums_and_means_on_device<kernels::ExactFloat8E4M3FN>(DType::kFloat8E4M3FN);
  expect_exact_sums_and_means_on_device<kernels::ExactFloat8E5M2>(DType::kFloat8E5M2);
}

TEST(Exact, IsRefusedForOtherTypes) {
  const float values[2] = {1, 2};
  float out[2] = {};
  const void* const parts[] = {values, values};
  EXPECT_THROW(combine(DType::kComplex64, ReduceOp::kExactSum, parts, out, 1), Error);
  EXPECT_THROW(combine(DType::kInt32, ReduceOp::kExactSum, parts, out, 1), Error);
  EXPECT_FALSE(can_reduce(DType::kComplex64, ReduceOp::kExactSum));
  EXPECT_FALSE(can_reduce(DType::kInt32, ReduceOp::kExactAvg));
  EXPECT_TRUE(can_reduce(DType::kBFloat16, ReduceOp::kExactAvg));
}

}  // namespace
}  // namespace altorch
