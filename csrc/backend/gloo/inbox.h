// SPDX-License-Identifier: BSD-3-Clause
// The receive side of one group over the shared connections: matches arrived messages with posted
// receives.
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

  // The group exists on this rank from now on. `mesh_ranks`: by rank of the group. Messages may
  // have arrived before.
  void open(std::vector<int> mesh_ranks, int own_mesh_rank);
  // The group is destroyed on this rank. Drops the messages that no receive has matched, and all
  // that arrive later.
  void close();
  // Whether the group is destroyed on this rank and on all peers, so that no message can arrive any
  // more.
  bool is_over() const;

  // Posts a receive.
  void receive(const GlooTransferPtr& transfer);
  // Cancels a posted receive. False if a message has matched it already, or if it has failed.
  bool withdraw(const GlooTransferPtr& transfer);
  // Why no message can be exchanged with this peer (kAnySource: with any peer), or nothing.
  std::optional<Error> failure(int mesh_rank) const;
  int rank_of(int mesh_rank) const;

  // The mesh calls these. left(): the peer has destroyed its part of the group. lost(): a
  // connection has failed, so receives that no message can match any more fail.
  void arrived(const GlooArrival& arrival);
  void left(int mesh_rank);
  void lost();

 private:
  // A message that has arrived before its receive was posted.
  struct Unexpected {
    GlooArrival arrival;
    std::unique_ptr<std::byte[]> payload;
  };
  void deliver(const GlooTransferPtr& transfer, const GlooArrival& arrival);
  void drop(const GlooArrival& arrival);
  std::optional<Error> failure_now(int mesh_rank) const;  // with mutex_ held
  // Fails the posted receives that no message can match any more. With mutex_ held.
  void fail_unmatchable();

  GlooMesh& mesh_;
  mutable std::mutex mutex_;     // guards what follows; locked before the mutex of a GlooPeer
  std::vector<int> mesh_ranks_;  // by rank of the group
  int own_mesh_rank_ = 0;
  bool closed_ = false;
  std::unordered_set<int> left_;
  std::list<GlooTransferPtr> target_;
  std::list<Unexpected> unexpected_;
};

}  // namespace altorch::backend
