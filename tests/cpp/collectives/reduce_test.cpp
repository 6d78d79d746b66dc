#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(Reduce, IsProvedFor1To64Ranks) { prove(OpKind::kReduce); }

}  // namespace
}  // namespace altorch::proof
