// What one group gets over the connections that all groups share: matches what arrives with what is awaited.
//
// Peers are seats in the mesh here, not ranks of the group. Thread rules: any thread.
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

  // The group is made here: `seats` of its ranks. Messages may have come before.
  void open(std::vector<int> seats, int own_seat);
  // The group is destroyed here. What nobody has asked for is dropped, and so is what comes.
  void close();
  // Whether nothing can come any more, nor be asked for.
  bool is_over() const;

  void receive(const GlooTransferPtr& transfer);
  // False when it is on its way.
  bool withdraw(const GlooTransferPtr& transfer);
  // Why nothing can go to this seat or come from it (kAnySource: from any), if so.
  std::optional<Error> failure(int seat) const;
  int rank_of(int seat) const;

  // For the mesh. left(): the peer has destroyed its part of the group; lost(): nothing comes from it at all.
  void arrived(const GlooArrival& arrival);
  void left(int seat);
  void lost();

 private:
  // A message that nobody has asked for yet.
  struct Unexpected {
    GlooArrival arrival;
    std::unique_ptr<std::byte[]> payload;
  };
  void deliver(const GlooTransferPtr& transfer, const GlooArrival& arrival);
  void drop(const GlooArrival& arrival);
  std::optional<Error> failure_now(int seat) const;  // with mutex_ held, as the next
  void fail_in_vain();

  GlooMesh& mesh_;
  mutable std::mutex mutex_;  // what follows; taken before a peer's
  std::vector<int> seats_;    // of the ranks
  int own_seat_ = 0;
  bool closed_ = false;
  std::unordered_set<int> left_;
  std::list<GlooTransferPtr> awaited_;
  std::list<Unexpected> unexpected_;
};

}  // namespace altorch::backend
