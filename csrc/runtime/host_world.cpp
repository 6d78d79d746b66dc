// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/host_world.h"

#include <utility>

#include "runtime/hierarchical_collectives.h"
#include "select/decide.h"
#include "transports/mpi/collectives.h"
#include "transports/shm/collectives.h"

namespace altorch {

hierarchical::Layout layout_on_nodes(int ranks, int nodes, int rank) {
  std::vector<int> node_of_rank;
  for (int each = 0; each < ranks; ++each)
    node_of_rank.push_back(static_cast<int>(static_cast<std::int64_t>(each) * nodes / ranks));
  return {std::move(node_of_rank), rank};
}

World host_world(int ranks, int nodes) {
  World world{.ranks = ranks, .node_count = ranks == 1 ? 1 : 0};
  const bool can_share =
      (ranks + nodes - 1) / nodes <= shm::Segment::kMostRanks && ShmCollectives::are_wanted();
  if (nodes == 1 && ranks > 1 && can_share) {
    world.node_count = 1;
    world.native.push_back(
        {ShmCollectives::kName, ShmCollectives::has, /*finishes_reductions=*/true, /*takes_staged=*/false});
  }
  if (const auto layout = layout_on_nodes(ranks, nodes, 0); layout.pays() && can_share) {
    world.node_count = nodes;
    const auto has = [layout](const Call& asked) { return hierarchical::has_plan(asked, layout); };
    world.native.push_back({HierarchicalCollectives::kName, has, /*finishes_reductions=*/false,
                            /*takes_staged=*/true,
                            "there is no plan for such a call, or messages are faster for so little"});
  }
  world.native.push_back(
      {MpiCollectives::kName, [ranks](const Call& asked) { return MpiCollectives::has(asked, ranks); }});
  return world;
}

Route route_on_host(Operation operation, int ranks, int nodes) {
  operation.device = kHostDevice;
  return decide(operation, host_world(ranks, nodes), Rules());
}

}  // namespace altorch
