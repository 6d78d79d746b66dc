// SPDX-License-Identifier: BSD-3-Clause
// The connections of one process to its peers, over one ProcessGroupGloo. Many groups share them,
// so a further group costs no thread, socket or buffer.
//
// The job's first group makes the mesh. While that group exists, new groups of its ranks use the
// same mesh. The mesh exists until the last of these groups is destroyed. If a connection breaks,
// messages between its two ranks fail in all groups. If the first group has another backend, each
// group makes a mesh of its own. A mesh rank is a rank of the group that made the mesh. Thread
// rules: any thread.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "backend/gloo/inbox.h"
#include "backend/gloo/peer.h"

namespace altorch::backend {

class GlooMesh final : private GlooListener {
 public:
  // `gloo` connects these ranks of the job, and has no other user. `mesh_rank` is this process's
  // index among them.
  GlooMesh(const c10::intrusive_ptr<c10d::Backend>& gloo, int mesh_rank, std::vector<int> job_ranks);
  // Flushes what was sent, for a few seconds at most.
  ~GlooMesh();

  // The mesh of the job's first group; null while there is none.
  static std::shared_ptr<GlooMesh> current();
  static void set_current(const std::shared_ptr<GlooMesh>& mesh);
  // New groups no longer use this mesh. Idempotent.
  void forget_current();

  int mesh_rank() const { return mesh_rank_; }
  int job_rank(int mesh_rank) const { return job_ranks_[static_cast<std::size_t>(mesh_rank)]; }
  GlooPeer& peer(int mesh_rank) { return *peers_[static_cast<std::size_t>(mesh_rank)]; }
  // Throws Error(kInternal) for a rank outside the mesh.
  std::vector<int> mesh_ranks_of(const std::vector<int>& job_ranks) const;

  // Called when this process creates and destroys its part of a group. `id`: equal on all ranks of
  // the group, and different from the id of every other group.
  std::shared_ptr<GlooInbox> enter(std::uint64_t id, const std::vector<int>& mesh_ranks);
  void leave(std::uint64_t id, const std::vector<int>& mesh_ranks);

 private:
  void arrived(const GlooArrival& arrival) override;
  void left(int mesh_rank, std::uint64_t group) override;
  void lost(int mesh_rank) override;
  // Creates the inbox if there is none yet: a message may arrive before this process has called
  // enter() for its group.
  std::shared_ptr<GlooInbox> inbox(std::uint64_t id);
  void forget_if_over(std::uint64_t id, const GlooInbox& inbox);

  const int mesh_rank_;
  const std::vector<int> job_ranks_;
  const long process_;
  std::mutex mutex_;  // the next; nothing else is locked under it
  std::unordered_map<std::uint64_t, std::shared_ptr<GlooInbox>> inboxes_;
  std::vector<std::unique_ptr<GlooPeer>> peers_;  // null at the own mesh rank
};

}  // namespace altorch::backend
