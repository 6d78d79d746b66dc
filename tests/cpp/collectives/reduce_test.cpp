// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(Reduce, IsProvedFor1To64Ranks) { prove(OpKind::kReduce); }

TEST(Reduce, FloatsAreCloseToTheReferenceAndRepeatable) {
  prove_floats(OpKind::kReduce, {1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 33});
}

}  // namespace
}  // namespace altorch::proof
