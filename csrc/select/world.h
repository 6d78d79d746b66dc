// SPDX-License-Identifier: BSD-3-Clause
// What all ranks of a group know of each other: of their transport, and after one allgather of
// their GPUs. It is the same on every rank, so that every rank makes the same choice from it.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/operation.h"
#include "select/route.h"

namespace altorch {

// What a rank tells the others.
struct GpuPeerInfo {
  std::string gpu, node;                // equal texts mean the same GPU, the same node
  bool mps = false;                     // kernels of several processes run on its GPU at the same time (MPS)
  int multiprocessors = 0;              // of its GPU; 0: unknown
  std::vector<std::string> links = {};  // the GPUs that its own is linked to: see GpuSource
  std::vector<std::string>
      unsupported_reasons;  // by route (table.h): why it cannot serve on this rank; empty: it can

  // A line for each; newlines within become spaces.
  std::string text() const;
  static GpuPeerInfo from(const std::string& text);
};

// What the choice of a route needs to know of NativeCollectives.
struct NativeRow {
  std::string_view name;
  std::function<bool(const Call&)> offers;
  bool finishes_reductions = false, takes_staged = false;
  // Why it does not carry a call that it does not offer, one clause.
  const char* lacks = "the transport has no such collective that gives every rank the same bits";
};

// Rules know this of a group.
struct GroupSize {
  int ranks = 1, nodes = 1;  // as in World
};

struct World {
  int ranks = 1;
  // How many nodes the ranks are on. 0: unknown; calls on host memory know it only if some ranks
  // share memory. A rule for a number of nodes then does not apply.
  int node_count = 1;
  // The native collectives for calls on host memory.
  std::vector<NativeRow> native = {};
  std::optional<int> first_remote_rank = {};         // the first rank that shares no memory with rank 0
  std::optional<std::pair<int, int>> same_gpu = {};  // the first two ranks that share a GPU
  bool mps = false;                                  // on every rank: see GpuPeerInfo
  bool linked = false;                               // every rank's GPU to every other's; none is shared
  // The most thread blocks of a kernel that waits for other ranks: two thirds of a rank's
  // multiprocessors, if known. The other multiprocessors are left to kernels that need too many
  // registers or too much shared memory to run beside such a block. Else such a kernel, and a call
  // of another group that is queued behind it, would wait for the waiting kernel to end. Peers may
  // wait in that call, while the waiting kernel waits for them: a deadlock.
  int waiting_blocks = std::numeric_limits<int>::max();
  bool deterministic = false;  // ALTORCH_DETERMINISTIC: nothing may reduce but in the order of the ranks
  std::vector<std::optional<std::string>> missing = {};  // by route: why it serves no call here
  // Of a group that spans nodes and has several ranks on one of them, on GPUs: the node of each
  // rank, numbered in the order of their first ranks; what the ranks of each node know of each
  // other, and those of each rail (collectives/hierarchical/layout.h).
  std::vector<int> node_of_rank = {};
  std::vector<World> nodes = {}, rails = {};

  GroupSize size() const { return {ranks, node_count}; }
  // Its index in `native`, or kNoNative.
  int native_named(std::string_view name) const;
  bool one_node() const { return !first_remote_rank; }
  bool own_gpus() const { return !same_gpu; }
  // Whether a kernel of one rank may wait for one of another.
  bool co_resident() const { return own_gpus() || mps; }

  // By rank; at least one.
  static World of(std::span<const GpuPeerInfo> peers);

 private:
  // Of a part of the group, without what its rows are missing.
  static World of(std::span<const GpuPeerInfo> peers, const std::vector<int>& members);
  // Fills in nodes and rails.
  void divide(std::span<const GpuPeerInfo> peers);
  void add_missing();
};

}  // namespace altorch
