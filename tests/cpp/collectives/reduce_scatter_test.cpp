// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(ReduceScatter, IsProvedFor1To64Ranks) { prove(OpKind::kReduceScatter); }

TEST(ReduceScatter, FloatsAreCloseToTheReferenceAndRepeatable) {
  prove_floats(OpKind::kReduceScatter, {1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 33});
}

}  // namespace
}  // namespace altorch::proof
