#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(ReduceScatter, IsProvedFor1To64Ranks) { prove(OpKind::kReduceScatter); }

}  // namespace
}  // namespace altorch::proof
