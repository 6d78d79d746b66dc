// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "base/shape.h"
#include "base/size_text.h"
#include "explain/parts.h"
#include "gpu/host_staged/pinned_bytes.h"
#include "select/decide.h"
#include "select/gpu_route.h"
#include "select/table.h"

namespace altorch {
namespace {

// Ranks in a row on each node, with a GPU for each or one for all of the node.
World of_gpus(const Question& question) {
  std::vector<GpuPeerInfo> peers(static_cast<std::size_t>(question.ranks));
  for (int rank = 0; rank < question.ranks; ++rank) {
    GpuPeerInfo& peer = peers[static_cast<std::size_t>(rank)];
    peer.node = std::to_string(static_cast<std::int64_t>(rank) * question.nodes / question.ranks);
    peer.gpu = peer.node + (question.share_gpus ? "" : "/" + std::to_string(rank));
  }
  for (GpuPeerInfo& peer : peers) {
    for (const GpuPeerInfo& other : peers) {
      if (question.linked && &other != &peer && other.node == peer.node) peer.links.push_back(other.gpu);
    }
  }
  return World::of(peers);
}

constexpr const char* kLater = "an earlier one serves";

// Why a route that could carry the call does not.
std::string why_later(const GpuRouteRow& row, const Operation& asked, const World& world) {
  if (const char* why = row.named_only_reason(asked)) return why;
  std::int64_t most = 0;
  for (const Row& early : rows_on(On::kGpu)) {
    if (early.is_general() || early.carrier != row.name || !early.is_for(asked, world)) continue;
    if (early.serves(asked, world)) return kLater;
    most = std::max(most, early.most_bytes(world.ranks));
  }
  if (most == 0 || most == kUnlimited) return kLater;
  return "it comes first up to " + size_text(scatters(asked.kind) ? most / world.ranks : most);
}

void add_gpu_routes(Explanation& said, const std::optional<Route>& taken, const Operation& asked,
                    const World& world, const Rules& rules) {
  const std::string_view ruled = asked_gpu_route(rules, {&asked, 1}, world);
  for (const GpuRouteRow* row : gpu_route_rows()) {
    if ((taken && taken->row == row) || row->forced) continue;  // the latter is no choice
    const bool allowed = ruled.empty() || ruled == row->name || row->is_fallback_for(ruled);
    const auto why = unsupported_reason({.name = row->name, .row = row}, {&asked, 1}, world);
    said.others.push_back(
        {std::string(row->name), why.value_or(ruled.empty() ? why_later(*row, asked, world)
                                              : allowed     ? kLater
                                                            : "ALTORCH_ROUTE says " + std::string(ruled))});
  }
}

}  // namespace

Explanation explain_on_gpus(const Question& question, const Operation& asked) {
  Explanation said;
  const World world = of_gpus(question);
  const Rules rules;
  const auto taken = decide({&asked, 1}, world, rules, [&](const Route& route) {
    return !unsupported_reason(route, {&asked, 1}, world) &&
           (!route.in_pairs || LlExchanges::goes_in_pairs(asked, route.row->pair_bytes(world.ranks)));
  });
  said.route = said.algorithm = taken ? taken->name : "none";
  if (taken) {
    said.reason = taken->reason;
    const std::string_view named = rules.gpu_protocol(asked, world.size(), taken->name);
    add_protocol(said, *taken, taken->row->explain(asked, world, named), named);
  }
  add_gpu_routes(said, taken, asked, world, rules);
  return said;
}

}  // namespace altorch
