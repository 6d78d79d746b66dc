// SPDX-License-Identifier: BSD-3-Clause
// Values in 8 bits: every instruction set and the kernels for GPUs give the same packs and sums,
// and no value is farther from its code than docs/quantized.md says.
#include "reduction/quantized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "reduction/kernel_table.h"
#include "reduction/reference.h"
#include "support/fake_device.h"

namespace altorch {
namespace {

// The last unit is not full, and one more is empty.
constexpr std::size_t kCount = 3 * kQuantizedUnit - 100, kUnits = 4, kBytes = kUnits * kQuantizedUnitBytes;
using Packs = std::vector<std::uint16_t>;

// The pack that holds a value.
std::size_t pack_of(std::size_t i) { return i / kQuantizedUnit * 60 + i % 120 / 2; }

// Normal numbers; packs with one large number, one of zeros, and one with a NaN.
std::vector<float> values_in_packs(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = normal(random);
    if (pack_of(i) % 7 == 2) values[i] = i % kQuantizedUnit / 120 == 5 ? 1e6f : values[i] * 1e-3f;
    if (pack_of(i) == 61) values[i] = 0;
  }
  values[3] = NAN;
  return values;
}
bool has_nan(std::size_t i) { return pack_of(i) == pack_of(3); }

Packs quantized(const std::vector<float>& values, bool float8) {
  Packs packs(kBytes / 2, 0xA5A5);
  quantize(DType::kFloat32, float8, values.data(), values.size(), packs.data(), kUnits);
  return packs;
}

TEST(Quantized, NoValueIsFarFromItsCode) {
  for (const bool float8 : {false, true}) {
    const auto values = values_in_packs(1);
    const auto packs = quantized(values, float8);
    const void* const parts[] = {packs.data()};
    std::vector<float> back(kCount), largest(3 * 60);
    sum_quantized(DType::kFloat32, float8, parts, 1.0f, back.data(), kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      largest[pack_of(i)] = std::max(largest[pack_of(i)], std::fabs(values[i]));
    for (std::size_t i = 0; i < kCount; ++i) {
      if (has_nan(i)) {
        EXPECT_TRUE(std::isnan(back[i])) << i;
        continue;
      }
      const float scale = largest[pack_of(i)] / (float8 ? 448 : 127) * (1 + 1.0f / 128);
      const float bound = float8 ? std::fabs(values[i]) / 16 + scale / 1024 : scale / 2;
      EXPECT_LE(std::fabs(back[i] - values[i]), bound * 1.000001f) << i << (float8 ? " float8" : " int8");
    }
    EXPECT_TRUE(
        std::all_of(packs.end() - kQuantizedUnitBytes / 2, packs.end(), [](auto word) { return word == 0; }));
  }
}

// The codes of a pack with a NaN mean nothing, and differ.
Packs without_nan(Packs packs) {
  const auto first = packs.begin() + static_cast<std::ptrdiff_t>(8 * pack_of(3));
  EXPECT_EQ(first[7], 0x7FC0);
  std::fill(first, first + 8, std::uint16_t{0});
  return packs;
}

TEST(Quantized, EveryInstructionSetGivesTheSame) {
  auto values = values_in_packs(2);
  values.resize(3 * kQuantizedUnit);
  for (const std::size_t code : {0, 1}) {
    std::vector<Packs> made;
    std::vector<std::vector<float>> sums;
    for (const auto* table : reduction::usable_kernel_tables()) {
      Packs packs(3 * kQuantizedUnitBytes / 2);
      table->quantize[code](values.data(), 3, packs.data());
      auto& sum = sums.emplace_back(values.size(), 0.5f);
      table->add_quantized[code](packs.data(), 3, sum.data());
      made.push_back(without_nan(std::move(packs)));
      EXPECT_EQ(made.back(), made.front()) << table->name << " code " << code;
      EXPECT_EQ(reference::first_difference(DType::kFloat32, sums.back().data(), sums.front().data(),
                                            values.size()),
                values.size())
          << table->name;
    }
  }
}

TEST(Quantized, KernelsForGpusGiveTheSame) {
  FakeDevice device;
  const Stream stream = device.make_stream();
  constexpr std::size_t kRow = sizeof(QuantizedHeader) + kBytes;
  for (const bool float8 : {false, true}) {
    const auto values = values_in_packs(3), others = values_in_packs(4);
    std::vector<QuantizedHeader> chunks(2 * kRow / sizeof(QuantizedHeader));
    const auto packs_of = [&](std::size_t chunk) {
      Packs packs(kBytes / 2);
      std::memcpy(packs.data(),
                  reinterpret_cast<std::byte*>(chunks.data()) + chunk * kRow + sizeof(QuantizedHeader),
                  kBytes);
      return packs;
    };
    std::vector<float> wanted(kCount), made(kCount);
    const auto change = [&](QuantizedChunks job) {
      job.size = kUnits * kQuantizedUnit;
      job.stride = kRow;
      job.count = kCount;
      job.float8 = float8;
      device.change_chunks(job, DType::kFloat32, stream);
    };
    const QuantizedHeader header{.count = kCount, .kind = 5};
    change({.input = values.data(), .chunks = chunks.data(), .number = 1, .header = header});
    change({.input = others.data(),
            .chunks = chunks.data() + kRow / sizeof header,
            .number = 1,
            .header = header});
    QuantizedChunks sum{.output = made.data(),
                        .chunks = chunks.data(),
                        .number = 2,
                        .step = QuantizedChunks::kSum,
                        .factor = 0.5f,
                        .header = {}};
    change(sum);
    ASSERT_TRUE(device.synchronize(stream));
    const auto first = quantized(values, float8), second = quantized(others, float8);
    EXPECT_EQ(without_nan(packs_of(0)), without_nan(first)) << "float8: " << float8;
    const void* const both[] = {first.data(), second.data()};
    sum_quantized(DType::kFloat32, float8, both, 0.5f, wanted.data(), kCount);
    EXPECT_EQ(reference::first_difference(DType::kFloat32, made.data(), wanted.data(), kCount), kCount);

    chunks[0].kind = 6;  // of another call
    change(sum);
    ASSERT_TRUE(device.synchronize(stream));
    EXPECT_TRUE(std::all_of(made.begin(), made.end(), [](float value) { return std::isnan(value); }));
  }
}

TEST(Quantized, IsRefusedForOtherTypes) {
  double value = 1;
  Packs packs(kBytes / 2);
  EXPECT_THROW(quantize(DType::kFloat64, false, &value, 1, packs.data(), kUnits), Error);
}

}  // namespace
}  // namespace altorch
