// SPDX-License-Identifier: BSD-3-Clause
// On which node each rank of a group lies, and which ranks lead or form rails. Immutable: any
// thread.
#pragma once

#include <cstddef>
#include <vector>

namespace altorch::hierarchical {

class Layout {
 public:
  // `node_of_rank`: by rank; nodes are numbered in the order of their first ranks. `leader_places`:
  // by node, the place of its leader there; empty: the first.
  Layout(std::vector<int> node_of_rank, int rank, std::vector<int> leader_places = {});

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(node_of_rank_.size()); }
  int nodes() const { return static_cast<int>(ranks_of_.size()); }
  int node_of(int rank) const { return node_of_rank_[static_cast<std::size_t>(rank)]; }
  int own_node() const { return node_of(rank_); }
  const std::vector<int>& ranks_of(int node) const { return ranks_of_[static_cast<std::size_t>(node)]; }
  const std::vector<int>& neighbours() const { return ranks_of(own_node()); }  // this rank included
  // Its place among those of its node.
  int place_of(int rank) const { return place_of_[static_cast<std::size_t>(rank)]; }
  int own_place() const { return place_of(rank_); }
  bool is_alone() const { return neighbours().size() == 1; }  // on its node

  // How many rails there are: the least number of ranks on a node. Rail i: rank i of each node.
  int rails() const { return rails_; }
  // Whether the ranks of each node follow one another.
  bool is_contiguous() const { return is_contiguous_; }
  // Whether all nodes have the same number of ranks.
  bool is_even() const { return rails_ * nodes() == size(); }
  bool pays() const { return nodes() > 1 && nodes() < size(); }

  // The rank of `node` for a call with this root: the one on the root's rail. If the root is on no
  // rail: `root` itself on its node, the leader on other nodes. root < 0: the leader.
  int leader_of(int node, int root = -1) const;
  // leader_of() for every node.
  std::vector<int> leaders(int root = -1) const;
  // The ranks of rail `place`, by node; `place` < rails().
  std::vector<int> rail(int place) const;

 private:
  const std::vector<int> node_of_rank_;
  const int rank_;
  std::vector<std::vector<int>> ranks_of_;  // by node
  std::vector<int> place_of_;
  const std::vector<int> leader_places_;
  int rails_ = 0;
  bool is_contiguous_ = true;
};

}  // namespace altorch::hierarchical
