// The engine's Channel over torch's Gloo: matches what arrives with what is awaited.
//
// Thread rules: any thread.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/gloo_peer.h"
#include "transports/channel.h"

namespace altorch::backend {

class GlooChannel final : public Channel, private GlooListener {
 public:
  // `gloo` connects the ranks of the group and serves nobody else; `global_ranks` is for messages.
  GlooChannel(const c10::intrusive_ptr<c10d::Backend>& gloo, int rank, const std::vector<int>& global_ranks);
  // Lets go what was sent, for a few seconds at most.
  ~GlooChannel() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::int64_t max_tag() const override { return (std::int64_t{1} << 40) - 1; }
  void send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  void receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  State test(std::span<Request> requests, std::optional<Error>& error) override;
  bool cancel(std::span<Request> requests) override;

 private:
  // A message that nobody has asked for yet.
  struct Unexpected {
    GlooArrival arrival;
    std::unique_ptr<std::byte[]> payload;
    GlooTransferPtr sender;  // of a message to oneself, which is done when this is taken
  };
  void arrived(const GlooArrival& arrival) override;
  void lost(int peer) override;
  void send_to_self(const GlooTransferPtr& transfer);
  void deliver(const GlooTransferPtr& transfer, const GlooArrival& arrival);
  bool withdraw(const GlooTransferPtr& transfer);
  void release(Request& request);
  void sleep_over(const GlooTransfer* pending, std::uint64_t seen);
  GlooPeer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  std::optional<Error> failure(int peer) const;

  const int rank_;
  const long process_;
  std::atomic<const GlooTransfer*> waited_for_{nullptr};  // see test()
  std::atomic<std::uint64_t> last_seen_{0};
  std::mutex mutex_;  // what follows up to the blank line; taken before a peer's
  std::list<GlooTransferPtr> awaited_;
  std::list<Unexpected> unexpected_;

  std::vector<std::unique_ptr<GlooPeer>> peers_;  // none at the own rank
};

}  // namespace altorch::backend
