// SPDX-License-Identifier: BSD-3-Clause
#include "reduction/kernel_table.h"

#include <gtest/gtest.h>

#include "reduction/reference.h"

namespace altorch::reduction {
namespace {

TEST(KernelTable, TheBestUsableSetIsTaken) {
  ASSERT_FALSE(usable_kernel_tables().empty());
  EXPECT_EQ(std::string(usable_kernel_tables().front()->name), "baseline");
  EXPECT_EQ(&kernel_table(), usable_kernel_tables().back());
}

// Ranks of one group may run on different CPUs and must still agree.
TEST(KernelTable, EverySetGivesTheSameBits) {
  std::mt19937_64 random(11);
  constexpr std::size_t kCount = 2011;
  const KernelTable& baseline = *usable_kernel_tables().front();
  for (DType dtype : reference::all_dtypes()) {
    for (ReduceOp op : reference::kAllOps) {
      const auto first = baseline.reduce[static_cast<int>(dtype)][static_cast<int>(op)];
      if (first == nullptr) continue;
      const auto a = reference::random_elements(dtype, kCount, random);
      const auto b = reference::random_elements(dtype, kCount, random);
      std::vector<unsigned char> expected(a.size()), out(a.size());
      first(a.data(), b.data(), expected.data(), kCount);
      for (const auto* table : usable_kernel_tables()) {
        table->reduce[static_cast<int>(dtype)][static_cast<int>(op)](a.data(), b.data(), out.data(), kCount);
        EXPECT_EQ(reference::first_difference(dtype, out.data(), expected.data(), kCount), kCount)
            << reference::describe(table->name, dtype, op);
      }
    }
  }
}

// MIN and MAX: the first NaN with its payload, and the first operand of +0 and -0, in vectors as in
// their rest.
TEST(KernelTable, MinAndMaxDependOnlyOnTheOrderedPair) {
  const auto float_of = [](std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  };
  const float nan_one = float_of(0x7FC00001), nan_two = float_of(0xFFC00002);
  const std::vector<std::array<float, 3>> rows = {{0.0f, -0.0f, 0.0f},         {-0.0f, 0.0f, -0.0f},
                                                  {nan_one, 1, nan_one},       {1, nan_two, nan_two},
                                                  {nan_one, nan_two, nan_one}, {nan_two, nan_one, nan_two}};
  for (const auto* table : usable_kernel_tables()) {
    for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      for (const auto& [a, b, expected] : rows) {
        const std::vector<float> left(37, a), right(37, b);
        std::vector<float> out(37);
        const auto kernel = table->reduce[static_cast<int>(DType::kFloat32)][static_cast<int>(op)];
        kernel(left.data(), right.data(), out.data(), out.size());
        for (float value : out) {
          EXPECT_EQ(std::memcmp(&value, &expected, sizeof(value)), 0)
              << reference::describe(table->name, DType::kFloat32, op) << " of " << a << " and " << b;
        }
      }
    }
  }
}

}  // namespace
}  // namespace altorch::reduction
