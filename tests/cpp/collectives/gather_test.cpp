// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(Gather, IsProvedFor1To64Ranks) { prove(OpKind::kGather); }

}  // namespace
}  // namespace altorch::proof
