// What `altorch explain --device cuda` says.
#include <algorithm>
#include <vector>

#include "engine/explain.h"
#include "engine/host_staged/layout.h"
#include "engine/route/decide.h"
#include "engine/route/rules.h"

namespace altorch {
namespace {

// Ranks in a row on each node, with a GPU for each or one for all of the node.
World imagined(int ranks, int nodes, bool share_gpus) {
  std::vector<GpuPeerInfo> peers(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    GpuPeerInfo& peer = peers[static_cast<std::size_t>(rank)];
    peer.home = std::to_string(static_cast<std::int64_t>(rank) * nodes / ranks);
    peer.gpu = peer.home + (share_gpus ? "" : "/" + std::to_string(rank));
  }
  return World::of(peers);
}

}  // namespace

Explanation explain_on_gpus(const std::string& operation, const std::string& dtype, std::int64_t bytes,
                            int ranks, int nodes, bool share_gpus) {
  Operation asked;
  asked.kind = kind_named(operation);
  asked.dtype = dtype_named(dtype);
  asked.count = bytes / static_cast<std::int64_t>(size_of(asked.dtype));
  const World world = imagined(ranks, nodes, share_gpus);
  const std::string_view ruled = Rules().gpu_route(asked, ranks);
  const Candidates candidates({&asked, 1}, world, ruled);
  const auto taken = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return !obstacle(*candidate.row, {&asked, 1}, world, false) &&
           (!candidate.in_pairs || goes_in_pairs(asked, ranks));
  });
  Explanation said;
  said.route = said.algorithm = "none";
  if (taken != candidates.end()) {
    said.route = said.algorithm = taken->row->name;
    said.reason = taken->reason;
    said.rounds = taken->row->steps(asked, world);
  }
  for (const GpuRouteRow* row : gpu_route_rows()) {
    if (taken != candidates.end() && taken->row == row) continue;
    const bool allowed = std::any_of(candidates.begin(), candidates.end(),
                                     [&](const Candidate& candidate) { return candidate.row == row; });
    said.others.push_back(
        {std::string(row->name), obstacle(*row, {&asked, 1}, world, false)
                                     .value_or(allowed ? "the first that serves is taken"
                                                       : "ALTORCH_ROUTE says " + std::string(ruled))});
  }
  return said;
}

}  // namespace altorch
