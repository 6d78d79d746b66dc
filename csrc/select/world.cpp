// SPDX-License-Identifier: BSD-3-Clause
#include "select/world.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "base/env.h"
#include "collectives/hierarchical/layout.h"
#include "select/gpu_route.h"

namespace altorch {
namespace {

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text + "\n";
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ",") + name;
  return all;
}

bool is_linked(const GpuPeerInfo& peer, const GpuPeerInfo& other) {
  return std::find(peer.links.begin(), peer.links.end(), other.gpu) != peer.links.end();
}

}  // namespace

std::string GpuPeerInfo::text() const {
  std::string all = one_line(gpu) + one_line(node) + one_line(mps ? "mps" : "") +
                    one_line(std::to_string(multiprocessors)) + one_line(joined(links));
  for (const std::string& unsupported_reason : unsupported_reasons) all += one_line(unsupported_reason);
  return all;
}

GpuPeerInfo GpuPeerInfo::from(const std::string& text) {
  GpuPeerInfo peer;
  std::istringstream lines(text);
  std::getline(lines, peer.gpu);
  std::getline(lines, peer.node);
  std::string together;
  std::getline(lines, together);
  peer.mps = !together.empty();
  std::string multiprocessors;
  std::getline(lines, multiprocessors);
  std::from_chars(multiprocessors.data(), multiprocessors.data() + multiprocessors.size(),
                  peer.multiprocessors);
  std::string links;
  std::getline(lines, links);
  std::istringstream names(links);
  for (std::string name; std::getline(names, name, ',');) {
    if (!name.empty()) peer.links.push_back(name);
  }
  peer.unsupported_reasons.resize(gpu_route_rows().size());
  for (std::string& unsupported_reason : peer.unsupported_reasons) std::getline(lines, unsupported_reason);
  return peer;
}

int World::native_named(std::string_view name) const {
  const auto found =
      std::find_if(native.begin(), native.end(), [&](const auto& row) { return row.name == name; });
  return found == native.end() ? kNoNative : static_cast<int>(found - native.begin());
}

World World::of(std::span<const GpuPeerInfo> peers) {
  std::vector<int> all(peers.size());
  std::iota(all.begin(), all.end(), 0);
  World world = of(peers, all);
  world.divide(peers);
  world.add_missing();
  return world;
}

void World::divide(std::span<const GpuPeerInfo> peers) {
  std::map<std::string_view, int> numbers;
  std::vector<int> nodes_of_ranks;
  for (const GpuPeerInfo& peer : peers)
    nodes_of_ranks.push_back(numbers.emplace(peer.node, static_cast<int>(numbers.size())).first->second);
  const hierarchical::Layout layout(nodes_of_ranks, /*rank=*/0);
  if (!layout.pays()) return;
  node_of_rank = std::move(nodes_of_ranks);
  const auto part = [&](const std::vector<int>& members) {
    World made = of(peers, members);
    made.add_missing();
    return made;
  };
  for (int node = 0; node < layout.nodes(); ++node) nodes.push_back(part(layout.ranks_of(node)));
  for (int place = 0; place < layout.rails(); ++place) rails.push_back(part(layout.rail(place)));
}

void World::add_missing() {
  for (const GpuRouteRow* row : gpu_route_rows()) {
    auto& why = missing[index_of(*row)];
    if (!why) why = row->unsupported_among(*this);
  }
}

World World::of(std::span<const GpuPeerInfo> peers, const std::vector<int>& members) {
  const auto peer_of = [&](int rank) -> const GpuPeerInfo& { return peers[static_cast<std::size_t>(rank)]; };
  World world{.ranks = static_cast<int>(members.size()), .mps = true, .linked = members.size() > 1};
  world.deterministic = setting("ALTORCH_DETERMINISTIC") == "1";
  world.missing.resize(gpu_route_rows().size());
  // Of each GPU: the first of these ranks, and how many ranks of the whole group.
  std::map<std::string_view, int> user_of, users;
  for (const GpuPeerInfo& peer : peers) ++users[peer.gpu];
  std::set<std::string_view> nodes;
  for (const int rank : members) {
    const GpuPeerInfo& peer = peer_of(rank);
    world.mps &= peer.mps;
    nodes.insert(peer.node);
    for (const int other : members) world.linked &= other == rank || is_linked(peer, peer_of(other));
    if (peer.multiprocessors > 0) {
      const auto blocks = static_cast<int>(
          std::max<std::int64_t>(1, peer.multiprocessors * std::int64_t{2} / (3 * users[peer.gpu])));
      world.waiting_blocks = std::min(world.waiting_blocks, blocks);
    }
    for (std::size_t i = 0; i < peer.unsupported_reasons.size(); ++i) {
      if (!peer.unsupported_reasons[i].empty() && !world.missing[i])
        world.missing[i] = "on rank " + std::to_string(rank) + " " + peer.unsupported_reasons[i];
    }
    if (peer.node != peer_of(members.front()).node && !world.first_remote_rank)
      world.first_remote_rank = rank;
    const auto [first, alone] = user_of.emplace(peer.gpu, rank);
    if (!alone && !world.same_gpu) world.same_gpu = {first->second, rank};
  }
  world.node_count = static_cast<int>(nodes.size());
  return world;
}

}  // namespace altorch
