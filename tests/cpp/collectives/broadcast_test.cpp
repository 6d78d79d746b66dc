// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(Broadcast, IsProvedFor1To64Ranks) { prove(OpKind::kBroadcast); }

}  // namespace
}  // namespace altorch::proof
