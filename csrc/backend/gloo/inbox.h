// SPDX-License-Identifier: BSD-3-Clause
// The receive side of one group over the shared connections: matches arrived messages with posted receives.
//
// Peers are mesh ranks here, not ranks of the group. Thread rules: any thread.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "backend/gloo/peer.h"
#include "transports/channel.h"

namespace altorch::backend {

class GlooMesh;

class GlooInbox {
 public:
  // The mesh outlives its use.
  explicit GlooInbox(GlooMesh& mesh) : mesh_(mesh) {}

  // The group exists on this rank from now on; `mesh_ranks`: of its ranks. Messages may have arrived before.
  void open(std::vector<int> mesh_ranks, int own_mesh_rank);
  // The group is destroyed here. What nobody has asked for is dropped, and so is what comes.
  void close();
  // Whether nothing can come any more, nor be asked for.
  bool is_over() const;

  void receive(const GlooTransferPtr& transfer);
  // False when it is on its way.
  bool withdraw(const GlooTransferPtr& transfer);
  // Why no message can reach this peer or come from it (kAnySource: from any), if so.
  std::optional<Error> failure(int mesh_rank) const;
  int rank_of(int mesh_rank) const;

  // For the mesh. left(): the peer has destroyed its part of the group; lost(): nothing comes from it at all.
  void arrived(const GlooArrival& arrival);
  void left(int mesh_rank);
  void lost();

 private:
  // A message that nobody has asked for yet.
  struct Unexpected {
    GlooArrival arrival;
    std::unique_ptr<std::byte[]> payload;
  };
  void deliver(const GlooTransferPtr& transfer, const GlooArrival& arrival);
  void drop(const GlooArrival& arrival);
  std::optional<Error> failure_now(int mesh_rank) const;  // with mutex_ held, as the next
  void fail_in_vain();

  GlooMesh& mesh_;
  mutable std::mutex mutex_;     // what follows; taken before a peer's
  std::vector<int> mesh_ranks_;  // of the ranks
  int own_mesh_rank_ = 0;
  bool closed_ = false;
  std::unordered_set<int> left_;
  std::list<GlooTransferPtr> awaited_;
  std::list<Unexpected> unexpected_;
};

}  // namespace altorch::backend
