// A collective of a group that spans nodes, as sub-calls: on the node, through memory; and between nodes, as messages
// of some ranks.
//
//   small          on each node to its leader, among the leaders, from the leader to its node
//   large          every rank reduces a slice with its node, then with its rail (the ranks that have its place on the
//                  other nodes), and collects the slices on its node: every rank uses the network
//
// A pure function of what all ranks know alike.
#pragma once

#include <string>
#include <vector>

#include "common/call.h"
#include "engine/hierarchical/layout.h"

namespace altorch::hierarchical {

// One sub-call, of which this rank is a part.
struct Stage {
  int number = 0;                 // the same on all ranks, which take part in different ones
  Call call = {};                 // ranks and roots count among the members
  std::vector<int> members = {};  // ranks of the group between which messages go; empty: this rank's node
  int own = 0;                    // its place among them
  std::vector<std::int64_t> counts = {};  // what the call's spans point to

  bool is_on_node() const { return members.empty(); }
};

bool has_plan(const Call& call, const Layout& layout);
// Elements that a rank needs beside its own buffers.
std::int64_t partial_elements(const Call& call);
// `partial`: so many of them.
std::vector<Stage> plan_of(const Call& call, const Layout& layout, void* partial);
// For people.
std::string describe(const Call& call, const Layout& layout);

}  // namespace altorch::hierarchical
