// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(AllToAll, IsProvedFor1To64Ranks) { prove(OpKind::kAllToAll); }

}  // namespace
}  // namespace altorch::proof
