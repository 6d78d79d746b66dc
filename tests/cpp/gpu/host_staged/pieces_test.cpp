// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/pieces.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"

namespace altorch {
namespace {

// Every byte of the caller's buffers is in one piece, and no two copies of a piece share bytes of
// the slot.
TEST(PieceCutter, CoversEveryElementOnce) {
  for (const OpKind kind :
       {OpKind::kAllReduce, OpKind::kBroadcast, OpKind::kAllGather, OpKind::kReduceScatter}) {
    for (const int size : {1, 3, 8}) {
      for (const std::int64_t count : {0, 1, 63, 1000}) {
        for (const bool even : {true, false}) {
          const int rank = size - 1;
          std::vector<std::int64_t> counts;
          for (int i = 0; i < size; ++i) counts.push_back(even ? count : count * i / 2);
          const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
          const std::int64_t own = counts.back();
          std::vector<double> input(static_cast<std::size_t>(all + 1)), output(input.size());
          Operation operation;
          operation.kind = kind;
          operation.dtype = DType::kFloat64;
          operation.count = own;
          operation.input = kind == OpKind::kBroadcast ? nullptr : input.data();
          operation.output = output.data();
          const bool gathers = kind == OpKind::kAllGather, scatters = kind == OpKind::kReduceScatter;
          if (gathers && !even) operation.output_counts = counts;
          if (scatters && !even) operation.input_counts = counts;

          std::vector<std::byte> slot(2048);
          const auto vectors = gathers || scatters ? size + 1 : 1;
          const PieceCutter cutter(operation, rank, size,
                                   PieceCutter::step_for(slot.size(), DType::kFloat64, vectors));
          std::vector<int> read(input.size() * 8), written(input.size() * 8);
          Piece piece;
          for (std::int64_t i = 0; i < cutter.pieces(); ++i) {
            cutter.cut(i, slot.data(), piece);
            std::vector<int> used(slot.size());
            const auto mark = [&](const std::vector<PieceCopy>& copies, const void* base,
                                  std::vector<int>& seen, bool in_slot) {
              for (const PieceCopy& copy : copies) {
                ASSERT_LE(copy.host + copy.bytes, slot.data() + slot.size());
                const auto at = copy.device - static_cast<const std::byte*>(base);
                for (std::size_t k = 0; k < copy.bytes; ++k) {
                  ++seen[static_cast<std::size_t>(at) + k];
                  if (in_slot) ++used[static_cast<std::size_t>(copy.host - slot.data()) + k];
                }
              }
            };
            const bool in_place = !gathers && !scatters;
            mark(piece.inputs, kind == OpKind::kBroadcast ? output.data() : input.data(), read, true);
            mark(piece.outputs, output.data(), written, !in_place);
            for (const int times : used) ASSERT_LE(times, 1);
          }
          const auto covered = [&](const std::vector<int>& seen, std::int64_t elements) {
            for (std::size_t k = 0; k < seen.size(); ++k)
              ASSERT_EQ(seen[k], static_cast<std::int64_t>(k) < elements * 8 ? 1 : 0);
          };
          if (kind != OpKind::kBroadcast) covered(read, scatters ? all : own);  // this rank is not the root
          covered(written, kind == OpKind::kBroadcast && size == 1 ? 0 : gathers ? all : own);
        }
      }
    }
  }
}

TEST(PieceCutter, RefusesPiecesThatHoldLessThanAnElementPerRank) {
  EXPECT_THROW(PieceCutter::step_for(1000, DType::kUInt8, 1001), Error);
  EXPECT_EQ(PieceCutter::step_for(1000, DType::kUInt8, 1000), 1);
  EXPECT_EQ(PieceCutter::step_for(1 << 20, DType::kFloat32, 3) % 64, 0);
}

}  // namespace
}  // namespace altorch
