// SPDX-License-Identifier: BSD-3-Clause
// Halves and float8 to float32 and back, on every instruction set.
#include <gtest/gtest.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "base/error.h"
#include "reduction/kernel_table.h"
#include "reduction/reduce.h"
#include "reduction/reference.h"

namespace altorch {
namespace {

using reduction::KernelTable;
using reduction::usable_kernel_tables;
using reference::decode_half;
using reference::encode_half;
using reference::get;

constexpr DType kHalves[] = {DType::kFloat16, DType::kBFloat16};

std::vector<std::uint16_t> every_half() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

void expect_narrowed(const KernelTable& table, DType dtype, const std::vector<float>& wide) {
  std::vector<std::uint16_t> half(wide.size());
  table.narrow[static_cast<int>(dtype)](wide.data(), half.data(), wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const std::uint16_t expected = encode_half(dtype, wide[i]);
    if (std::isnan(wide[i])) {
      ASSERT_TRUE(std::isnan(decode_half(dtype, half[i]))) << table.name << " " << name_of(dtype);
    } else {
      ASSERT_EQ(half[i], expected) << table.name << " " << name_of(dtype) << " of " << wide[i];
    }
  }
}

TEST(Widen, IsExactForEveryHalf) {
  const auto halves = every_half();
  for (const auto* table : usable_kernel_tables()) {
    for (DType dtype : kHalves) {
      std::vector<float> wide(halves.size());
      table->widen[static_cast<int>(dtype)](halves.data(), wide.data(), halves.size());
      for (std::size_t i = 0; i < halves.size(); ++i) {
        const auto expected = static_cast<float>(decode_half(dtype, halves[i]));
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(wide[i])) << table->name << " " << name_of(dtype) << " bits " << i;
        } else {
          ASSERT_EQ(std::memcmp(&wide[i], &expected, 4), 0)
              << table->name << " " << name_of(dtype) << " " << i;
        }
      }
    }
  }
}

// Both neighbours of every half, the points half-way between them, and the floats beside those.
TEST(Narrow, RoundsToNearestEven) {
  for (DType dtype : kHalves) {
    std::vector<float> wide;
    for (std::uint16_t half : every_half()) {
      const auto value = static_cast<float>(decode_half(dtype, half));
      const auto next = static_cast<float>(decode_half(dtype, static_cast<std::uint16_t>(half + 1)));
      wide.push_back(value);
      if (!std::isfinite(value) || std::signbit(value) != std::signbit(next)) continue;
      // Beyond the largest finite half the next step would be twice the last one's half.
      const double step = std::isfinite(next)
                              ? double{next} - value
                              : double{value} - decode_half(dtype, static_cast<std::uint16_t>(half - 1));
      const auto middle = static_cast<float>(value + step / 2);
      wide.insert(wide.end(),
                  {middle, std::nextafterf(middle, -INFINITY), std::nextafterf(middle, INFINITY)});
    }
    for (const auto* table : usable_kernel_tables()) expect_narrowed(*table, dtype, wide);
  }
}

TEST(Narrow, RoundsFloatsOfAnyBits) {
  std::mt19937 random(3);
  std::vector<float> wide(1'000'001);
  for (float& value : wide) {
    const auto bits = static_cast<std::uint32_t>(random());
    std::memcpy(&value, &bits, sizeof(value));
  }
  wide.insert(wide.end(),
              {INFINITY, -INFINITY, NAN, 3.4028235e38f, -3.4028235e38f, 1e-45f, 65519.996f, 65520.0f});
  for (const auto* table : usable_kernel_tables()) {
    for (DType dtype : kHalves) expect_narrowed(*table, dtype, wide);
  }
}

TEST(Widen, IsExactForEveryFloat8) {
  unsigned char all[256];
  for (unsigned bits = 0; bits < 256; ++bits) all[bits] = static_cast<unsigned char>(bits);
  for (const auto* table : usable_kernel_tables()) {
    for (const DType dtype : {DType::kFloat8E4M3FN, DType::kFloat8E5M2}) {
      float wide[256];
      unsigned char back[256];
      table->widen[static_cast<int>(dtype)](all, wide, 256);
      table->narrow[static_cast<int>(dtype)](wide, back, 256);
      for (unsigned bits = 0; bits < 256; ++bits) {
        const double expected = reference::decode_float8(dtype, bits);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(wide[bits])) << table->name << " " << name_of(dtype) << " bits " << bits;
        } else {
          ASSERT_EQ(wide[bits], expected) << table->name << " " << name_of(dtype) << " bits " << bits;
          ASSERT_EQ(std::signbit(wide[bits]), bits >= 128) << table->name << " " << name_of(dtype);
          ASSERT_EQ(back[bits], bits) << table->name << " " << name_of(dtype);
        }
      }
    }
  }
}

// Every boundary between two float8, the floats beside it, and floats of any bits.
TEST(Narrow, RoundsToTheNearestFloat8) {
  std::mt19937 random(5);
  for (const DType dtype : {DType::kFloat8E4M3FN, DType::kFloat8E5M2}) {
    std::vector<float> wide = {INFINITY, -INFINITY, NAN,    480.0f, 65536.0f,
                               61440.0f, 464.0f,    1e-45f, -0.0f,  3.4e38f};
    for (unsigned bits = 0; bits < 0x7B; ++bits) {
      const auto middle = static_cast<float>(
          (reference::decode_float8(dtype, bits) + reference::decode_float8(dtype, bits + 1)) / 2);
      for (const float sign : {1.0f, -1.0f})
        for (const float value : {middle, std::nextafterf(middle, 0), std::nextafterf(middle, INFINITY)})
          wide.push_back(sign * value);
    }
    for (int i = 0; i < 2000; ++i) {
      const auto bits = static_cast<std::uint32_t>(random());
      float value;
      std::memcpy(&value, &bits, sizeof value);
      wide.push_back(value);
      wide.push_back(std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 40) - 50));
    }
    std::vector<unsigned char> made(wide.size());
    for (const auto* table : usable_kernel_tables()) {
      table->narrow[static_cast<int>(dtype)](wide.data(), made.data(), wide.size());
      for (std::size_t i = 0; i < wide.size(); ++i) {
        if (std::isnan(wide[i])) {
          ASSERT_TRUE(std::isnan(reference::decode_float8(dtype, made[i])));
        } else {
          ASSERT_EQ(made[i], reference::encode_float8(dtype, wide[i]))
              << table->name << " " << name_of(dtype) << " of " << wide[i];
        }
      }
    }
  }
}

// A NaN whose payload lies in the bits that are dropped must not become an infinity.
TEST(Narrow, KeepsNaN) {
  for (std::uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7F801FFFu, 0x7FC00000u, 0xFFFFFFFFu}) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    for (const auto* table : usable_kernel_tables()) {
      for (DType dtype : kHalves) expect_narrowed(*table, dtype, std::vector<float>(33, value));
    }
  }
}

#if defined(__SSE__)
// torch.set_flush_denormal(True) makes a thread treat float32 subnormals as zero; a float16
// subnormal is a normal float32 and must survive.
TEST(Widen, KeepsFloat16SubnormalsWhenTheThreadFlushesFloat32Ones) {
  const unsigned int before = _mm_getcsr();
  for (const auto* table : usable_kernel_tables()) {
    const std::vector<std::uint16_t> half(17, 0x0001);
    std::vector<float> wide(17);
    std::vector<std::uint16_t> back(17);
    _mm_setcsr(before | 0x8040);
    table->widen[static_cast<int>(DType::kFloat16)](half.data(), wide.data(), half.size());
    table->narrow[static_cast<int>(DType::kFloat16)](wide.data(), back.data(), half.size());
    _mm_setcsr(before);
    for (float value : wide) EXPECT_EQ(value, 0x1p-24f) << table->name;
    for (std::uint16_t value : back) EXPECT_EQ(value, 0x0001) << table->name;
  }
}
#endif

TEST(Widen, IsRefusedForOtherTypes) {
  float value = 0;
  EXPECT_THROW(widen(DType::kFloat32, &value, &value, 1), Error);
  EXPECT_THROW(narrow(DType::kFloat8E8M0FNU, &value, &value, 1), Error);
}

}  // namespace
}  // namespace altorch
