#include "collectives/algorithm.h"

#include "collectives/cost.h"

namespace altorch {

// Each is defined in <operation>/<name>.cpp.
// clang-format off
namespace schedules {
using Build = Schedule(const Problem& problem);
namespace all_reduce { Build one_shot, recursive_doubling, rabenseifner, ring, pairwise; }
namespace reduce { Build linear, binomial, pairwise; }
namespace broadcast { Build linear, binomial, scatter_all_gather, pairwise; }
namespace all_gather { Build linear, recursive_doubling, bruck, ring; }
namespace reduce_scatter { Build pairwise, ring; }
namespace all_to_all { Build linear, bruck, pairwise; }
namespace gather { Build binomial, linear; }
namespace scatter { Build binomial, linear; }
namespace barrier { Build linear, dissemination; }
}  // namespace schedules
// clang-format on

namespace {

using namespace schedules;

constexpr bool kEvenOnly = true, kPipelined = true, kCombines = true;

// clang-format off
constexpr Algorithm kAlgorithms[] = {
    {OpKind::kAllReduce, "one_shot",
     "everyone sends all it has to everyone; small vectors, few ranks",
     "(p-1) (a + n b + n g)",
     !kEvenOnly, !kPipelined, kCombines, cost::vectors_summed, all_reduce::one_shot},
    {OpKind::kAllReduce, "recursive_doubling",
     "partners at distance 1, 2, 4, ... exchange all they have; small vectors",
     "log2(p) (a + n b + n g)",
     !kEvenOnly, !kPipelined, !kCombines, cost::all_reduce_recursive_doubling, all_reduce::recursive_doubling},
    {OpKind::kAllReduce, "rabenseifner",
     "recursive halving, then recursive doubling; medium vectors",
     "2 log2(p) a + 2 (p-1)/p n b + (p-1)/p n g",
     !kEvenOnly, !kPipelined, !kCombines, cost::all_reduce_rabenseifner, all_reduce::rabenseifner},
    {OpKind::kAllReduce, "ring",
     "every block twice around a ring of neighbours; large vectors",
     "2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g",
     !kEvenOnly, kPipelined, !kCombines, cost::vector_by_blocks, all_reduce::ring},
    {OpKind::kAllReduce, "pairwise",
     "every block straight to its rank, its result straight to everyone; large vectors, few ranks, half types",
     "2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g",
     !kEvenOnly, kPipelined, kCombines, cost::vector_by_blocks, all_reduce::pairwise},

    {OpKind::kReduce, "linear",
     "every vector straight to the root; small vectors, few ranks",
     "(p-1) (a + n b + n g)",
     !kEvenOnly, !kPipelined, kCombines, cost::vectors_summed, reduce::linear},
    {OpKind::kReduce, "binomial",
     "up a binomial tree",
     "ceil(log2 p) (a + n b + n g)",
     !kEvenOnly, !kPipelined, !kCombines, cost::reduce_binomial, reduce::binomial},
    {OpKind::kReduce, "pairwise",
     "every block straight to its rank, its result straight to the root; large vectors",
     "2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g",
     !kEvenOnly, !kPipelined, kCombines, cost::vector_by_blocks, reduce::pairwise},

    {OpKind::kBroadcast, "linear",
     "from the root straight to everyone; small vectors, few ranks",
     "(p-1) (a + n b)",
     !kEvenOnly, !kPipelined, !kCombines, cost::one_after_another, broadcast::linear},
    {OpKind::kBroadcast, "binomial",
     "down a binomial tree; small vectors",
     "ceil(log2 p) (a + n b)",
     !kEvenOnly, !kPipelined, !kCombines, cost::broadcast_binomial, broadcast::binomial},
    {OpKind::kBroadcast, "scatter_all_gather",
     "one block to each rank down a tree, then around a ring; large vectors",
     "(ceil(log2 p) + p-1) a + 2 (p-1)/p n b",
     !kEvenOnly, !kPipelined, !kCombines, cost::broadcast_scatter_all_gather, broadcast::scatter_all_gather},
    {OpKind::kBroadcast, "pairwise",
     "one block straight to each rank, from there straight to everyone; large vectors, few ranks",
     "2 (p-1) a + 2 (p-1)/p n b",
     !kEvenOnly, !kPipelined, !kCombines, cost::broadcast_pairwise, broadcast::pairwise},

    {OpKind::kAllGather, "linear",
     "every block straight to everyone; few ranks",
     "(p-1) (a + n b)",
     !kEvenOnly, !kPipelined, !kCombines, cost::one_after_another, all_gather::linear},
    {OpKind::kAllGather, "recursive_doubling",
     "partners at distance 1, 2, 4, ... exchange all they have; small blocks, p = 2^k",
     "log2(p) a + (p-1) n b",
     !kEvenOnly, !kPipelined, !kCombines, cost::all_gather_recursive_doubling, all_gather::recursive_doubling},
    {OpKind::kAllGather, "bruck",
     "what a rank has doubles in every round; small blocks, any p",
     "ceil(log2 p) a + (p-1) n b",
     !kEvenOnly, !kPipelined, !kCombines, cost::all_gather_bruck, all_gather::bruck},
    {OpKind::kAllGather, "ring",
     "every block once around a ring of neighbours; large blocks",
     "(p-1) (a + n b)",
     !kEvenOnly, !kPipelined, !kCombines, cost::one_after_another, all_gather::ring},

    {OpKind::kReduceScatter, "pairwise",
     "every block straight to its rank, which combines the parts in one step",
     "(p-1) (a + n b + n g)",
     !kEvenOnly, kPipelined, kCombines, cost::vectors_summed, reduce_scatter::pairwise},
    {OpKind::kReduceScatter, "ring",
     "every block once around a ring of neighbours, summed on the way",
     "(p-1) (a + n b + n g)",
     !kEvenOnly, kPipelined, !kCombines, cost::vectors_summed, reduce_scatter::ring},

    {OpKind::kAllToAll, "linear",
     "every block straight to its rank, all at once; few ranks",
     "(p-1) (a + n b)",
     !kEvenOnly, !kPipelined, !kCombines, cost::one_after_another, all_to_all::linear},
    {OpKind::kAllToAll, "bruck",
     "blocks travel in company along the bits of their distance; small blocks",
     "ceil(log2 p) (a + p/2 n b)",
     kEvenOnly, !kPipelined, !kCombines, cost::all_to_all_bruck, all_to_all::bruck},
    {OpKind::kAllToAll, "pairwise",
     "every block straight to its rank, a different partner in each round; large blocks",
     "(p-1) (a + n b)",
     !kEvenOnly, !kPipelined, !kCombines, cost::one_after_another, all_to_all::pairwise},

    {OpKind::kGather, "binomial",
     "up a binomial tree, whole subtrees at once; small blocks",
     "ceil(log2 p) a + (p-1) n b",
     kEvenOnly, !kPipelined, !kCombines, cost::tree_of_blocks, gather::binomial},
    {OpKind::kGather, "linear",
     "every block straight to the root; large or uneven blocks",
     "(p-1) (a + n b)",
     !kEvenOnly, !kPipelined, !kCombines, cost::one_after_another, gather::linear},

    {OpKind::kScatter, "binomial",
     "down a binomial tree, whole subtrees at once; small blocks",
     "ceil(log2 p) a + (p-1) n b",
     kEvenOnly, !kPipelined, !kCombines, cost::tree_of_blocks, scatter::binomial},
    {OpKind::kScatter, "linear",
     "every block straight from the root; large or uneven blocks",
     "(p-1) (a + n b)",
     !kEvenOnly, !kPipelined, !kCombines, cost::one_after_another, scatter::linear},

    {OpKind::kBarrier, "linear",
     "everyone tells everyone; few ranks",
     "(p-1) a",
     !kEvenOnly, !kPipelined, !kCombines, cost::one_after_another, barrier::linear},
    {OpKind::kBarrier, "dissemination",
     "in round k each rank tells the one 2^k further on",
     "ceil(log2 p) a",
     !kEvenOnly, !kPipelined, !kCombines, cost::barrier_dissemination, barrier::dissemination},
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
