// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(Scan, IsProvedFor1To64Ranks) { prove(OpKind::kScan); }
TEST(Exscan, IsProvedFor1To64Ranks) { prove(OpKind::kExscan); }
TEST(Scan, AddsFloats) {
  prove_floats(OpKind::kScan, {1, 2, 5, 8, 13});
  prove_floats(OpKind::kExscan, {2, 5, 8, 13});
}

}  // namespace
}  // namespace altorch::proof
