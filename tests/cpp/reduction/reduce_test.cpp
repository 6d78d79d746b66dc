// SPDX-License-Identifier: BSD-3-Clause
#include "reduction/reduce.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/error.h"
#include "reduction/kernel_table.h"
#include "reduction/reference.h"

namespace altorch {
namespace {

using reduction::usable_kernel_tables;
using reference::all_dtypes;
using reference::first_difference;
using reference::kAllOps;

// Torch's rules, written down once more: nothing here asks the table under test. A sum of float8 is
// no single step: rounded_once().
bool torch_defines(DType dtype, ReduceOp op) {
  if (is_float8(dtype)) return is_reducible_float8(dtype) && (op == ReduceOp::kMin || op == ReduceOp::kMax);
  switch (op) {
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return is_integral(dtype) || dtype == DType::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return !is_complex(dtype);
    case ReduceOp::kAvg:
      return dtype != DType::kBool;
    case ReduceOp::kPremulSum:
      return is_floating(dtype) || is_complex(dtype);
    default:
      return true;
  }
}

std::vector<unsigned char> expected_of(DType dtype, ReduceOp op, const void* a, const void* b,
                                       std::size_t count) {
  std::vector<unsigned char> expected(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) reference::combine(dtype, op, a, b, expected.data(), i);
  return expected;
}

TEST(Reduce, DefinesWhatTorchDefines) {
  for (DType dtype : all_dtypes()) {
    for (ReduceOp op : kAllOps) {
      EXPECT_EQ(can_reduce(dtype, op), torch_defines(dtype, op)) << name_of(dtype) << " " << name_of(op);
      for (const auto* table : usable_kernel_tables()) {
        const bool there = table->reduce[static_cast<int>(dtype)][static_cast<int>(op)] != nullptr;
        EXPECT_EQ(there, torch_defines(dtype, op)) << reference::describe(table->name, dtype, op);
      }
    }
  }
}

TEST(Reduce, MatchesTheReferenceForEverySmallCount) {
  std::mt19937_64 random(20240601);
  for (DType dtype : all_dtypes()) {
    for (ReduceOp op : kAllOps) {
      if (!can_reduce(dtype, op)) continue;
      for (const auto* table : usable_kernel_tables()) {
        const auto kernel = table->reduce[static_cast<int>(dtype)][static_cast<int>(op)];
        for (std::size_t count = 0; count <= 67; ++count) {
          const auto a = reference::random_elements(dtype, count, random);
          const auto b = reference::random_elements(dtype, count, random);
          const auto expected = expected_of(dtype, op, a.data(), b.data(), count);
          std::vector<unsigned char> out(expected.size() + 8, 0xA5);
          kernel(a.data(), b.data(), out.data(), count);
          ASSERT_EQ(first_difference(dtype, out.data(), expected.data(), count), count)
              << reference::describe(table->name, dtype, op) << ", count " << count;
          for (std::size_t i = expected.size(); i < out.size(); ++i) {
            ASSERT_EQ(int{out[i]}, 0xA5)
                << reference::describe(table->name, dtype, op) << " wrote past the end, count " << count;
          }
        }
      }
    }
  }
}

TEST(Reduce, MatchesTheReferenceForAMillionElements) {
  std::mt19937_64 random(7);
  constexpr std::size_t kCount = 1'000'003;
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kInt8, DType::kComplex64}) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) {
      const auto a = reference::random_elements(dtype, kCount, random);
      const auto b = reference::random_elements(dtype, kCount, random);
      std::vector<unsigned char> out(a.size());
      reduce(dtype, op, a.data(), b.data(), out.data(), kCount);
      const auto expected = expected_of(dtype, op, a.data(), b.data(), kCount);
      EXPECT_EQ(first_difference(dtype, out.data(), expected.data(), kCount), kCount)
          << name_of(dtype) << " " << name_of(op);
    }
  }
}

TEST(Reduce, WritesOverEitherOperandAtAnyAddress) {
  std::mt19937_64 random(99);
  constexpr std::size_t kCount = 131;
  for (DType dtype : all_dtypes()) {
    for (ReduceOp op : kAllOps) {
      if (!can_reduce(dtype, op)) continue;
      for (const auto* table : usable_kernel_tables()) {
        const auto kernel = table->reduce[static_cast<int>(dtype)][static_cast<int>(op)];
        for (std::size_t offset : {0, 1, 3, 8, 17}) {
          const auto a = reference::random_elements(dtype, kCount, random);
          const auto b = reference::random_elements(dtype, kCount, random);
          const auto expected = expected_of(dtype, op, a.data(), b.data(), kCount);
          std::vector<unsigned char> left(a.size() + 32), right(a.size() + 32);
          std::memcpy(left.data() + offset, a.data(), a.size());
          std::memcpy(right.data() + 1, b.data(), b.size());
          kernel(left.data() + offset, right.data() + 1, left.data() + offset, kCount);
          EXPECT_EQ(first_difference(dtype, left.data() + offset, expected.data(), kCount), kCount)
              << reference::describe(table->name, dtype, op) << " over a, offset " << offset;

          std::memcpy(left.data() + offset, a.data(), a.size());
          kernel(left.data() + offset, right.data() + 1, right.data() + 1, kCount);
          EXPECT_EQ(first_difference(dtype, right.data() + 1, expected.data(), kCount), kCount)
              << reference::describe(table->name, dtype, op) << " over b, offset " << offset;
        }
      }
    }
  }
}

TEST(Reduce, IsRefusedWithASentenceWhereTorchDefinesNothing) {
  unsigned char byte = 1;
  try {
    reduce(DType::kFloat8E4M3FN, ReduceOp::kSum, &byte, &byte, &byte, 1);
    FAIL() << "a float8 sum was computed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("SUM is not defined for float8_e4m3fn"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(int{byte}, 1);
}

// What combine() promises, one operation after another: in float32 for half types, which are
// rounded at the end.
std::vector<unsigned char> combined(DType dtype, ReduceOp op,
                                    const std::vector<std::vector<unsigned char>>& parts, std::size_t count) {
  const bool half = is_half(dtype);
  const DType wide = half ? DType::kFloat32 : dtype;
  const auto widened = [&](const std::vector<unsigned char>& part) {
    if (!half) return part;
    std::vector<unsigned char> floats(count * sizeof(float));
    widen(dtype, part.data(), reinterpret_cast<float*>(floats.data()), count);
    return floats;
  };
  auto result = widened(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    reduce(wide, op, result.data(), widened(parts[i]).data(), result.data(), count);
  }
  if (op == ReduceOp::kAvg) average(wide, result.data(), static_cast<int>(parts.size()), count);
  if (!half) return result;
  std::vector<unsigned char> rounded(count * size_of(dtype));
  narrow(dtype, reinterpret_cast<const float*>(result.data()), rounded.data(), count);
  return rounded;
}

TEST(Combine, TakesThePartsInOrderWhicheverItOverwrites) {
  std::mt19937_64 random(3);
  for (DType dtype : all_dtypes()) {
    for (ReduceOp op : kAllOps) {
      if (!can_reduce(dtype, op)) continue;
      for (const std::size_t number : {2, 3, 5}) {
        for (const std::size_t count : {0, 1, 67, 5000}) {  // the last in several chunks
          std::vector<std::vector<unsigned char>> parts;
          for (std::size_t i = 0; i < number; ++i)
            parts.push_back(reference::random_elements(dtype, count, random));
          const auto expected = combined(dtype, op, parts, count);
          for (std::size_t over = 0; over <= number; ++over) {  // the last: none
            auto mine = parts;
            std::vector<unsigned char> apart(expected.size());
            unsigned char* const out = over < number ? mine[over].data() : apart.data();
            std::vector<const void*> pointers;
            for (const auto& part : mine) pointers.push_back(part.data());
            combine(dtype, op, pointers, out, count);
            ASSERT_EQ(first_difference(dtype, out, expected.data(), count), count)
                << name_of(dtype) << " " << name_of(op) << ", " << number << " parts of " << count
                << ", over " << over;
          }
        }
      }
    }
  }
}

TEST(Combine, RoundsHalfTypesOnceAndAveragesWithoutOverflow) {
  const auto half = [](float value) {
    std::uint16_t bits = 0;
    narrow(DType::kFloat16, &value, &bits, 1);
    return bits;
  };
  // Each of the small ones alone is lost in a float16 sum.
  const std::uint16_t large = half(2048), small = half(1), most = half(60000);
  const void* const parts[] = {&large, &small, &small};
  std::uint16_t sum = 0;
  combine(DType::kFloat16, ReduceOp::kSum, parts, &sum, 1);
  EXPECT_EQ(sum, half(2050));
  const void* const full[] = {&most, &most, &most};
  combine(DType::kFloat16, ReduceOp::kAvg, full, &sum, 1);
  EXPECT_EQ(sum, most);
}

TEST(Scale, MultipliesInFloat32ForHalvesAndInTheTypeItselfOtherwise) {
  std::mt19937_64 random(5);
  constexpr std::size_t kCount = 67;
  constexpr double kFactor = 1.0 / 3.0;
  for (const auto* table : usable_kernel_tables()) {
    for (DType dtype : all_dtypes()) {
      const auto kernel = table->scale[static_cast<int>(dtype)];
      EXPECT_EQ(kernel != nullptr, is_floating(dtype) || is_complex(dtype)) << name_of(dtype);
      if (kernel == nullptr) continue;
      auto data = reference::random_elements(dtype, kCount, random);
      auto expected = data;
      const std::size_t reals = is_complex(dtype) ? 2 * kCount : kCount;
      for (std::size_t i = 0; i < reals; ++i) {
        void* out = expected.data();
        if (is_half(dtype)) {
          const double value = reference::decode_half(dtype, reference::get<std::uint16_t>(out, i));
          const float scaled = static_cast<float>(value * static_cast<float>(kFactor));
          reference::put<std::uint16_t>(out, i, reference::encode_half(dtype, scaled));
        } else if (size_of(dtype) / (is_complex(dtype) ? 2 : 1) == 4) {
          const double product = double{reference::get<float>(out, i)} * static_cast<float>(kFactor);
          reference::put<float>(out, i, static_cast<float>(product));
        } else {
          reference::put<double>(out, i, reference::get<double>(out, i) * kFactor);
        }
      }
      kernel(data.data(), kFactor, kCount);
      EXPECT_EQ(first_difference(dtype, data.data(), expected.data(), kCount), kCount)
          << table->name << " " << name_of(dtype);
    }
  }
}

TEST(Divide, TruncatesIntegersTowardsZero) {
  std::int32_t values[] = {7, -7, 8, -8, 0, 2147483647, -2147483647 - 1};
  divide(DType::kInt32, values, 3, 7);
  const std::int32_t expected[] = {2, -2, 2, -2, 0, 715827882, -715827882};
  for (int i = 0; i < 7; ++i) EXPECT_EQ(values[i], expected[i]) << i;

  std::uint8_t bytes[] = {255, 4, 3};
  divide(DType::kUInt8, bytes, 300, 3);  // a divisor that the type cannot hold
  for (std::uint8_t byte : bytes) EXPECT_EQ(int{byte}, 0);

  std::uint64_t large[] = {~std::uint64_t{0}};
  divide(DType::kUInt64, large, 2, 1);
  EXPECT_EQ(large[0], ~std::uint64_t{0} / 2);

  std::uint32_t beyond[] = {0xFFFFFFFFu};
  divide(DType::kUInt32, beyond, (1LL << 31), 1);  // a divisor beyond int32
  EXPECT_EQ(beyond[0], 1u);
}

TEST(Divide, RoundsOnceForFloatingTypes) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (int bits = 0; bits < 65536; ++bits) {
      auto half = static_cast<std::uint16_t>(bits);
      const auto quotient = static_cast<float>(reference::decode_half(dtype, half) / 3.0);
      const std::uint16_t expected = reference::encode_half(dtype, quotient);
      divide(dtype, &half, 3, 1);
      ASSERT_EQ(first_difference(dtype, &half, &expected, 1), 1u) << name_of(dtype) << " bits " << bits;
    }
  }
  double value[] = {1.0, -2.0};
  divide(DType::kFloat64, value, 3, 2);
  EXPECT_EQ(value[0], 1.0 / 3.0);
  divide(DType::kComplex128, value, 2, 1);
  EXPECT_EQ(value[1], -2.0 / 3.0 / 2);
}

// In float64 and rounded once more, which gives the nearest float32 for sure.
TEST(Average, IsTheQuotientToTheBit) {
  std::mt19937_64 random(11);
  constexpr std::size_t kCount = 2000;
  for (const int number : {1, 2, 3, 4, 5, 6, 7, 8, 12, 24, 100}) {
    std::vector<float> sums(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      sums[i] = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * (i % 2 == 0 ? 1.0f : 0.37f);
    std::vector<float> means = sums, complexes = sums;
    average(DType::kFloat32, means.data(), number, kCount);
    average(DType::kComplex64, complexes.data(), number, kCount / 2);
    std::vector<double> wide(sums.begin(), sums.end());
    average(DType::kFloat64, wide.data(), number, kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto expected = static_cast<float>(double{sums[i]} / number);
      ASSERT_EQ(means[i], expected) << sums[i] << " / " << number;
      ASSERT_EQ(complexes[i], expected) << sums[i] << " / " << number;
      ASSERT_EQ(wide[i], double{sums[i]} / number) << sums[i] << " / " << number;
    }
  }
}

TEST(Combine, MakesTheQuotientOfTheSum) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const std::size_t number : {2, 3, 5, 6, 7}) {
      for (int value = -300; value <= 300; ++value) {
        std::vector<std::vector<unsigned char>> parts;
        std::vector<const void*> pointers;
        float sum = 0;
        for (std::size_t i = 0; i < number; ++i) {
          const auto part = static_cast<float>(value + 7 * static_cast<int>(i % 3));
          std::vector<unsigned char> stored(sizeof(float));
          if (is_half(dtype)) {
            narrow(dtype, &part, stored.data(), 1);
          } else {
            std::memcpy(stored.data(), &part, sizeof part);
          }
          float exact = part;
          if (is_half(dtype)) widen(dtype, stored.data(), &exact, 1);
          sum += exact;
          parts.push_back(std::move(stored));
        }
        for (const auto& part : parts) pointers.push_back(part.data());
        std::vector<unsigned char> mean(sizeof(float)), expected(sizeof(float));
        combine(dtype, ReduceOp::kAvg, pointers, mean.data(), 1);
        const auto quotient = static_cast<float>(double{sum} / static_cast<double>(number));
        if (is_half(dtype)) {
          narrow(dtype, &quotient, expected.data(), 1);
        } else {
          std::memcpy(expected.data(), &quotient, sizeof quotient);
        }
        ASSERT_EQ(first_difference(dtype, mean.data(), expected.data(), 1), 1u)
            << name_of(dtype) << ": " << sum << " / " << number;
      }
    }
  }
}

TEST(Divide, RefusesAnEmptyAverageAndBool) {
  float value = 1;
  EXPECT_THROW(divide(DType::kFloat32, &value, 0, 1), Error);
  EXPECT_THROW(divide(DType::kBool, &value, 2, 1), Error);
  EXPECT_THROW(scale(DType::kInt32, &value, 2, 1), Error);
  EXPECT_EQ(value, 1.0f);
}

// As on any other thread: another one may add up the next time, and on another rank.
TEST(Reduce, HeedsNoSettingOfTheThread) {
#if defined(__SSE2__) || defined(__aarch64__)
  const float tiny = 3e-39f, third = 1.0f / 3;
  float sum = 0, quotient = 1, tenth = 0.1f, rounded = 0;
  reduce(DType::kFloat32, ReduceOp::kSum, &third, &tenth, &rounded, 1);
  const int before = std::fegetround();
  std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // subnormals are zero, on both sides
  const unsigned set = _mm_getcsr();
#endif
  reduce(DType::kFloat32, ReduceOp::kSum, &tiny, &tiny, &sum, 1);
  reduce(DType::kFloat32, ReduceOp::kSum, &third, &tenth, &tenth, 1);
  divide(DType::kFloat32, &quotient, 3, 1);
#if defined(__SSE2__)
  EXPECT_EQ(_mm_getcsr() & 0xE040, set & 0xE040) << "the thread's own setting";
  _mm_setcsr(saved);
#endif
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(before);
  EXPECT_EQ(std::memcmp(&quotient, &third, sizeof third), 0);
  EXPECT_EQ(std::memcmp(&tenth, &rounded, sizeof tenth), 0);
  const float twice = std::ldexp(tiny, 1);
  EXPECT_EQ(std::memcmp(&sum, &twice, sizeof twice), 0);
#else
  GTEST_SKIP() << "what this processor's threads set is not known here";
#endif
}

}  // namespace
}  // namespace altorch
