// SPDX-License-Identifier: BSD-3-Clause
// The engine's Channel over torch's Gloo: one group's view of the mesh.
//
// Thread rules: any thread.
#pragma once

#include <memory>
#include <vector>

#include "backend/gloo/mesh.h"
#include "rendezvous/peer_deaths.h"
#include "transports/channel.h"

namespace altorch::backend {

class GlooChannel final : public Channel {
 public:
  // `group`: an id that is the same on all its ranks, and no other group's; `job_ranks`: of its
  // members, all in the mesh, this process at `rank`. cancel() does not wait for ranks that
  // `deaths` reports as dead.
  GlooChannel(std::shared_ptr<GlooMesh> mesh, std::uint64_t group, int rank,
              const std::vector<int>& job_ranks, std::shared_ptr<const KnownDeaths> deaths);
  ~GlooChannel() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mesh_ranks_.size()); }
  std::int64_t max_tag() const override { return (std::int64_t{1} << 40) - 1; }
  void send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  void receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  State test(std::span<Request> requests, std::optional<Error>& error) override;
  bool cancel(std::span<Request> requests) override;

 private:
  bool withdraw(const GlooTransferPtr& transfer);
  void release(Request& request);
  void sleep_over(const GlooTransfer* pending, std::uint64_t seen);
  int mesh_rank_of(int rank) const { return mesh_ranks_[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<GlooMesh> mesh_;
  const std::uint64_t group_;
  const int rank_;
  const long process_;
  const std::vector<int> mesh_ranks_;  // by rank of the group
  const std::shared_ptr<const KnownDeaths> deaths_;
  std::shared_ptr<GlooInbox> inbox_;
  // Several requests of a group may be tested in turn. Only the test of this one may sleep, and
  // only if the count of GlooEvent is still last_seen_, its value at the test before.
  std::atomic<const GlooTransfer*> waited_for_{nullptr};
  std::atomic<std::uint64_t> last_seen_{0};
};

}  // namespace altorch::backend
