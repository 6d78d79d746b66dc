// SPDX-License-Identifier: BSD-3-Clause
// Values in 8 bits: every instruction set and the kernels for GPUs give the same bytes and sums,
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

constexpr std::size_t kCount = 700, kChunk = 1024, kChunkBytes = kChunk * 33 / 32;

// Normal numbers, blocks with one large number, a block of zeros, and one with a NaN.
std::vector<float> values_in_blocks(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = normal(random);
    if (i / 128 == 2) values[i] = i % 128 == 5 ? 1e6f : values[i] * 1e-3f;
    if (i / 128 == 3) values[i] = 0;
    if (i / 128 == 4 && i % 128 == 7) values[i] = NAN;
  }
  return values;
}

std::vector<unsigned char> quantized(const std::vector<float>& values, bool float8) {
  std::vector<unsigned char> chunk(kChunkBytes, 0xA5);
  quantize(DType::kFloat32, float8, values.data(), values.size(), chunk.data(), kChunk);
  return chunk;
}

TEST(Quantized, NoValueIsFarFromItsCode) {
  for (const bool float8 : {false, true}) {
    const auto values = values_in_blocks(1);
    const auto chunk = quantized(values, float8);
    const void* const chunks[] = {chunk.data()};
    std::vector<float> back(kCount);
    sum_quantized(DType::kFloat32, float8, chunks, kChunk, 1.0f, back.data(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      if (i / 128 == 4) {
        EXPECT_TRUE(std::isnan(back[i])) << i;
        continue;
      }
      float largest = 0;
      for (std::size_t j = i / 128 * 128; j < std::min(kCount, i / 128 * 128 + 128); ++j)
        largest = std::max(largest, std::fabs(values[j]));
      const float bound = float8 ? std::fabs(values[i]) / 16 + largest / 448 / 1024 : largest / 254;
      EXPECT_LE(std::fabs(back[i] - values[i]), bound * 1.000001f) << i << (float8 ? " float8" : " int8");
    }
  }
}

TEST(Quantized, EveryInstructionSetGivesTheSame) {
  const auto values = values_in_blocks(2);
  for (const std::size_t code : {0, 1}) {
    std::vector<std::vector<unsigned char>> made;
    std::vector<std::vector<float>> sums;
    for (const auto* table : reduction::usable_kernel_tables()) {
      auto& codes = made.emplace_back(kCount + 4 * 6);
      float scales[6];
      table->quantize[code](values.data(), kCount, codes.data(), scales);
      std::memcpy(codes.data() + kCount, scales, sizeof scales);
      auto& sum = sums.emplace_back(kCount, 0.5f);
      table->add_quantized[code](codes.data(), scales, sum.data(), kCount);
      // The codes of a block with a NaN mean nothing, and differ.
      for (auto& each : {&codes}) std::fill(each->begin() + 4 * 128, each->begin() + 5 * 128, 0);
      EXPECT_EQ(made.back(), made.front()) << table->name << " code " << code;
      EXPECT_EQ(reference::first_difference(DType::kFloat32, sums.back().data(), sums.front().data(), kCount),
                kCount)
          << table->name;
    }
  }
}

TEST(Quantized, KernelsForGpusGiveTheSame) {
  FakeDevice device;
  const Stream stream = device.make_stream();
  for (const bool float8 : {false, true}) {
    const auto values = values_in_blocks(3), others = values_in_blocks(4);
    std::vector<unsigned char> chunks(2 * kChunkBytes, 0xA5);
    std::vector<float> wanted(kCount), made(kCount);
    QuantizedChunks job;
    job.size = kChunk;
    job.stride = kChunkBytes;
    job.count = kCount;
    job.float8 = float8;
    job.number = 1;
    job.input = values.data();
    job.chunks = chunks.data();
    device.change_chunks(job, DType::kFloat32, stream);
    job.input = others.data();
    job.chunks = chunks.data() + kChunkBytes;
    device.change_chunks(job, DType::kFloat32, stream);
    job.step = QuantizedChunks::kSum;
    job.number = 2;
    job.factor = 0.5f;
    job.chunks = chunks.data();
    job.output = made.data();
    device.change_chunks(job, DType::kFloat32, stream);
    ASSERT_TRUE(device.synchronize(stream));
    const auto first = quantized(values, float8), second = quantized(others, float8);
    EXPECT_EQ(std::memcmp(chunks.data(), first.data(), 4 * 128), 0) << "codes";
    EXPECT_EQ(std::memcmp(chunks.data() + kChunk, first.data() + kChunk, kChunk / 32), 0) << "scales";
    const void* const both[] = {first.data(), second.data()};
    sum_quantized(DType::kFloat32, float8, both, kChunk, 0.5f, wanted.data(), kCount);
    EXPECT_EQ(reference::first_difference(DType::kFloat32, made.data(), wanted.data(), kCount), kCount);
  }
}

TEST(Quantized, IsRefusedForOtherTypes) {
  double value = 1;
  unsigned char chunk[kChunkBytes];
  EXPECT_THROW(quantize(DType::kFloat64, false, &value, 1, chunk, kChunk), Error);
}

}  // namespace
}  // namespace altorch
