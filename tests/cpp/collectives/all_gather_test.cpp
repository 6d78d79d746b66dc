// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(AllGather, IsProvedFor1To64Ranks) { prove(OpKind::kAllGather); }

}  // namespace
}  // namespace altorch::proof
