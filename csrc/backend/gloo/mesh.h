// The connections of one process to others, over one ProcessGroupGloo, which many groups share: their number
// costs no threads, no sockets and no buffers.
//
// The job's first group makes it; groups of its ranks use it as long as that group lives, and it lives as
// long as one of them does. A broken connection is every group's affair. Where the first group is another
// backend's, each group makes one of its own. Ranks are seats here: places in the group that made it. Thread
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
  // `gloo` connects these ranks of the job and serves nobody else; `seat` is this process's place among them.
  GlooMesh(const c10::intrusive_ptr<c10d::Backend>& gloo, int seat, std::vector<int> job_ranks);
  // Lets go what was sent, for a few seconds at most.
  ~GlooMesh();

  // That of the job's first group; null while there is none.
  static std::shared_ptr<GlooMesh> current();
  static void set_current(const std::shared_ptr<GlooMesh>& mesh);
  // No further groups use it. Idempotent.
  void retire();

  int seat() const { return seat_; }
  int job_rank(int seat) const { return job_ranks_[static_cast<std::size_t>(seat)]; }
  GlooPeer& peer(int seat) { return *peers_[static_cast<std::size_t>(seat)]; }
  // Throws Error(kInternal) for a rank that has none.
  std::vector<int> seats_of(const std::vector<int>& job_ranks) const;

  // A group begins and ends here. `id`: the same on all its ranks, and no other group's.
  std::shared_ptr<GlooInbox> enter(std::uint64_t id, const std::vector<int>& seats);
  void leave(std::uint64_t id, const std::vector<int>& seats);

 private:
  void arrived(const GlooArrival& arrival) override;
  void left(int seat, std::uint64_t group) override;
  void lost(int seat) override;
  // Made when the first of its ranks speaks, which may be before this one knows of the group.
  std::shared_ptr<GlooInbox> inbox(std::uint64_t id);
  void forget_if_over(std::uint64_t id, const GlooInbox& inbox);

  const int seat_;
  const std::vector<int> job_ranks_;
  const long process_;
  std::mutex mutex_;  // the next; nothing else is locked under it
  std::unordered_map<std::uint64_t, std::shared_ptr<GlooInbox>> inboxes_;
  std::vector<std::unique_ptr<GlooPeer>> peers_;  // none at the own seat
};

}  // namespace altorch::backend
