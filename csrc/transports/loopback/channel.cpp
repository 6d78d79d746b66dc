// SPDX-License-Identifier: BSD-3-Clause
#include "transports/loopback/channel.h"

#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>

#include "transports/loopback/mailbox.h"

namespace altorch {
namespace loopback {
namespace {

constexpr std::int64_t kMaxTag = (std::int64_t{1} << 30) - 1;

struct Outcome {
  bool done = false;
  int peer = 0;
  std::optional<Error> error;
};

// What the ranks share. One lock: this is for proofs, not for speed.
class World {
 public:
  World(int size, const LoopbackOptions& options)
      : options_(options), random_(options.seed), mailboxes_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(mailboxes_.size()); }

  void send(int rank, const void* data, std::size_t bytes, std::int64_t tag, Request& request) {
    const std::lock_guard lock(mutex_);
    const Ticket ticket = open(request);
    if (refuse(request.peer, tag, ticket)) return;
    Message message{rank, tag, data, bytes, request.type, now_ + delay(), ticket, {}};
    if (bytes <= options_.eager_bytes) {
      const auto* const begin = static_cast<const std::byte*>(data);
      message.copy.assign(begin, begin + bytes);
      message.sender = 0;
      outcomes_[ticket].done = true;
    }
    mailbox(request.peer).add(std::move(message));
    deliver(request.peer);
  }

  void receive(int rank, void* data, std::size_t bytes, std::int64_t tag, Request& request) {
    const std::lock_guard lock(mutex_);
    const Ticket ticket = open(request);
    if (request.peer != kAnySource && refuse(request.peer, tag, ticket)) return;
    mailbox(rank).add(Receive{ticket, request.peer, tag, data, bytes, request.type, request.exact});
    deliver(rank);
  }

  State test(int rank, std::span<Request> requests, std::optional<Error>& error) {
    const std::lock_guard lock(mutex_);
    ++now_;
    deliver(rank);
    State state = State::kDone;
    for (Request& request : requests) {
      if (request.handle == 0) continue;
      const auto found = outcomes_.find(request.handle);
      if (!found->second.done) {
        if (state == State::kDone) state = State::kPending;
        continue;
      }
      request.handle = 0;
      if (found->second.error) {
        if (state != State::kFailed) error = std::move(found->second.error);
        state = State::kFailed;
      } else if (request.is_receive) {
        request.peer = found->second.peer;
      }
      outcomes_.erase(found);
    }
    return state;
  }

  // Whether the buffers of all are free.
  bool cancel(int rank, std::span<Request> requests) {
    const std::lock_guard lock(mutex_);
    bool free = true;
    for (Request& request : requests) {
      if (request.handle == 0) continue;
      const auto found = outcomes_.find(request.handle);
      if (options_.keeps_cancelled && !found->second.done) {
        free = false;
        continue;
      }
      if (!found->second.done) mailbox(request.is_receive ? rank : request.peer).withdraw(request.handle);
      outcomes_.erase(found);
      request.handle = 0;
    }
    return free;
  }

 private:
  Mailbox& mailbox(int rank) { return mailboxes_[static_cast<std::size_t>(rank)]; }

  Ticket open(Request& request) {
    request.handle = ++last_ticket_;
    outcomes_[request.handle].peer = request.peer;
    return request.handle;
  }

  bool refuse(int peer, std::int64_t tag, Ticket ticket) {
    if (peer >= 0 && peer < size() && tag >= 0 && tag <= kMaxTag) return false;
    outcomes_[ticket] = {true, peer,
                         Error(ErrorKind::kInvalidArgument,
                               "Rank " + std::to_string(peer) + " with tag " + std::to_string(tag) +
                                   " cannot be addressed: ranks go from 0 to " + std::to_string(size() - 1) +
                                   ", tags from 0 to " + std::to_string(kMaxTag) + ".")};
    return true;
  }

  std::uint64_t delay() { return options_.longest_delay == 0 ? 0 : random_() % (options_.longest_delay + 1); }

  void deliver(int rank) {
    while (auto delivery = mailbox(rank).deliver(now_)) {
      if (delivery->sender != 0) outcomes_[delivery->sender].done = true;
      outcomes_[delivery->receiver] = {true, delivery->source, std::move(delivery->error)};
    }
  }

  const LoopbackOptions options_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::uint64_t now_ = 0;  // calls of test() so far
  Ticket last_ticket_ = 0;
  std::unordered_map<Ticket, Outcome> outcomes_;  // of the requests in flight
  std::vector<Mailbox> mailboxes_;
};

class LoopbackChannel : public Channel {
 public:
  LoopbackChannel(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_->size(); }
  std::int64_t max_tag() const override { return kMaxTag; }

  void send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override {
    request.bytes = bytes;
    request.peer = peer;
    request.is_receive = false;
    world_->send(rank_, data, bytes, tag, request);
  }
  void receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override {
    request.bytes = bytes;
    request.peer = peer;
    request.is_receive = true;
    world_->receive(rank_, data, bytes, tag, request);
  }
  State test(std::span<Request> requests, std::optional<Error>& error) override {
    return world_->test(rank_, requests, error);
  }
  bool cancel(std::span<Request> requests) override { return world_->cancel(rank_, requests); }

 private:
  const std::shared_ptr<World> world_;
  const int rank_;
};

}  // namespace
}  // namespace loopback

std::vector<std::unique_ptr<Channel>> make_loopback_channels(int size, const LoopbackOptions& options) {
  const auto world = std::make_shared<loopback::World>(size, options);
  std::vector<std::unique_ptr<Channel>> channels;
  for (int rank = 0; rank < size; ++rank) {
    channels.push_back(std::make_unique<loopback::LoopbackChannel>(world, rank));
  }
  return channels;
}

}  // namespace altorch
