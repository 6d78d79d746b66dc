#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(Barrier, IsProvedFor1To64Ranks) { prove(OpKind::kBarrier); }

}  // namespace
}  // namespace altorch::proof
