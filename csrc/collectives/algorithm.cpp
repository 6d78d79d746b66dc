#include "collectives/algorithm.h"

#include "collectives/cost.h"

namespace altorch {

// Each is defined in <operation>/<name>.cpp.
using Build = Schedule(const Problem& problem);
namespace all_reduce {
Build recursive_doubling, rabenseifner, ring;
}
namespace broadcast {
Build binomial, scatter_all_gather;
}
namespace all_gather {
Build bruck, recursive_doubling, ring;
}
namespace barrier {
Build dissemination;
}

namespace {

constexpr bool kEvenOnly = true, kPipelined = true;

// clang-format off
constexpr Algorithm kAlgorithms[] = {
    {OpKind::kAllReduce, "recursive_doubling", "partners at distance 1, 2, 4, ... exchange all they have; small sizes",
     "log2(p) (a + n b + n g)", !kEvenOnly, !kPipelined, cost::all_reduce_recursive_doubling, all_reduce::recursive_doubling},
    {OpKind::kAllReduce, "rabenseifner", "recursive halving, then recursive doubling; medium sizes",
     "2 log2(p) a + 2 (p-1)/p n b + (p-1)/p n g", !kEvenOnly, !kPipelined, cost::all_reduce_rabenseifner, all_reduce::rabenseifner},
    {OpKind::kAllReduce, "ring", "every block twice around a ring of neighbours; large sizes",
     "2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g", !kEvenOnly, kPipelined, cost::all_reduce_ring, all_reduce::ring},

    {OpKind::kBroadcast, "binomial", "down a binomial tree; small sizes",
     "ceil(log2 p) (a + n b)", !kEvenOnly, !kPipelined, cost::broadcast_binomial, broadcast::binomial},
    {OpKind::kBroadcast, "scatter_all_gather", "one block to each rank down a tree, then around a ring; large sizes",
     "(ceil(log2 p) + p-1) a + 2 (p-1)/p n b", !kEvenOnly, !kPipelined, cost::broadcast_scatter_all_gather, broadcast::scatter_all_gather},

    {OpKind::kAllGather, "recursive_doubling", "partners at distance 1, 2, 4, ... exchange all they have; small sizes, p = 2^k",
     "log2(p) a + (p-1) n b", !kEvenOnly, !kPipelined, cost::all_gather_recursive_doubling, all_gather::recursive_doubling},
    {OpKind::kAllGather, "bruck", "what a rank has doubles in every round, for any p; small sizes",
     "ceil(log2 p) a + (p-1) n b", !kEvenOnly, !kPipelined, cost::all_gather_bruck, all_gather::bruck},
    {OpKind::kAllGather, "ring", "every block once around a ring of neighbours; large sizes",
     "(p-1) (a + n b)", !kEvenOnly, !kPipelined, cost::all_gather_ring, all_gather::ring},

    {OpKind::kBarrier, "dissemination", "in round k each rank tells the one 2^k further on",
     "ceil(log2 p) a", !kEvenOnly, !kPipelined, cost::barrier_dissemination, barrier::dissemination},
};
// clang-format on

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(OpKind kind, std::string_view name) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.kind == kind && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace altorch
