// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/hierarchical/layout.h"

#include <algorithm>

namespace altorch::hierarchical {

Layout::Layout(std::vector<int> node_of_rank, int rank, std::vector<int> leader_places)
    : node_of_rank_(std::move(node_of_rank)), rank_(rank), leader_places_(std::move(leader_places)) {
  for (int each = 0; each < size(); ++each) {
    const auto node = static_cast<std::size_t>(node_of(each));
    if (node >= ranks_of_.size()) ranks_of_.resize(node + 1);
    place_of_.push_back(static_cast<int>(ranks_of_[node].size()));
    if (place_of_.back() > 0 && ranks_of_[node].back() != each - 1) is_contiguous_ = false;
    ranks_of_[node].push_back(each);
  }
  rails_ = size();
  for (const auto& ranks : ranks_of_) rails_ = std::min(rails_, static_cast<int>(ranks.size()));
}

int Layout::leader_of(int node, int root) const {
  const auto index = static_cast<std::size_t>(node);
  const auto& ranks = ranks_of_[index];
  if (root >= 0 && place_of(root) < rails_) return ranks[static_cast<std::size_t>(place_of(root))];
  if (root >= 0 && node_of(root) == node) return root;
  return ranks[leader_places_.empty() ? 0 : static_cast<std::size_t>(leader_places_[index])];
}

std::vector<int> Layout::leaders(int root) const {
  std::vector<int> all;
  all.reserve(ranks_of_.size());
  for (int node = 0; node < nodes(); ++node) all.push_back(leader_of(node, root));
  return all;
}

std::vector<int> Layout::rail(int place) const {
  std::vector<int> all;
  all.reserve(ranks_of_.size());
  for (const auto& ranks : ranks_of_) all.push_back(ranks[static_cast<std::size_t>(place)]);
  return all;
}

}  // namespace altorch::hierarchical
