// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(Scatter, IsProvedFor1To64Ranks) { prove(OpKind::kScatter); }

}  // namespace
}  // namespace altorch::proof
