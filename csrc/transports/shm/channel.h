// SPDX-License-Identifier: BSD-3-Clause
// Messages through the memory that the ranks of a node share: copied into a ring when they are
// small, from the sender's memory when they are large and processes may do that, and part by part
// through the ring otherwise.
#pragma once

#include <deque>
#include <list>
#include <mutex>
#include <vector>

#include "platform/single_copy.h"
#include "transports/channel.h"
#include "transports/shm/mail.h"

namespace altorch {

class ShmChannel : public Channel {
 public:
  // `memory`: the memory of `mail`, which lives as long as the channel. `processes`: by rank; empty
  // if the ranks may not copy from each other's memory.
  ShmChannel(std::shared_ptr<std::byte> memory, shm::Mail mail, std::vector<shm::Process> processes);

  int rank() const override { return mail_.rank(); }
  int size() const override { return mail_.size(); }
  std::int64_t max_tag() const override { return (std::int64_t{1} << 62) - 1; }
  void send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  void receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  State test(std::span<Request> requests, std::optional<Error>& error) override;
  WaitTarget wait_target() const override { return mail_.doorbell(); }
  // Always frees the buffers: only the receiving rank writes to a receive buffer, in test(), and a
  // send buffer is only read.
  bool cancel(std::span<Request> requests) override;

 private:
  using Handle = std::uintptr_t;  // index in pending_ plus 1; 0: none
  using Handles = std::list<Handle>;

  // The state of a request that is not done.
  struct Pending {
    bool is_receive = false, exact = true, done = false;
    bool aborted = false;  // aborted half-way, and the peer does not know yet
    int peer = 0;
    std::int64_t tag = 0;
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t bytes = 0;
    ElementType type = 0;
    std::size_t moved = 0;     // through the ring, or copied
    shm::Frame offer = {};     // a send has it in the table, a receive copies from it
    Handles* queue = nullptr;  // the queue that it waits in, and where
    Handles::iterator place = {};
    std::optional<Error> error = {};
  };
  // A message that came before its receive.
  struct Early {
    int peer;
    shm::Frame frame;
    std::vector<std::byte> bytes;
  };
  // A message that comes in parts.
  struct Arriving {
    Handle receive = 0;  // 0 without `early`: its receive was cancelled
    Early* early = nullptr;
    std::size_t bytes = 0;  // of the message; 0: none is arriving
    std::size_t got = 0;
  };

  Pending& open(Request& request, std::int64_t tag);
  void close(Request& request);
  Pending& pending(Handle handle) { return pending_[handle - 1]; }
  // Both take constant time, because thousands of requests may be cancelled together.
  void enter(Handles& queue, Handle handle);
  void leave_queue(Handle handle);
  std::atomic<std::uint64_t>& state_of(int sender, const shm::Frame& offer) {
    return mail_.offer(sender, offer.place);
  }
  void progress();

  // channel_outbox.cpp. False: there is no room for all of it.
  bool post(Pending& message);
  bool post_offer(Pending& message);
  bool post_parts(Pending& message);
  void post_unsent(int peer);
  void look_after_offers();
  void withdraw(Pending& message);

  // channel_inbox.cpp
  void take_mail(int peer);
  void take_part(int peer, const shm::Frame& frame, const std::byte* data);
  void take_early(Handle handle);
  Handles::iterator wanted(int peer, std::int64_t tag);
  // The message has met its receive; false: it was withdrawn.
  bool deliver(Handle handle, int peer, const shm::Frame& frame, const void* data);
  // True at its end.
  bool copy_on(Pending& receive);
  static void conclude(Pending& receive, int peer, const shm::Frame& frame);
  void forget(Handle receive);
  // Tells the sender that the copy of its message is done. False if the sender has withdrawn the
  // message.
  bool let_go(const Pending& receive);

  const std::shared_ptr<std::byte> memory_;
  const std::vector<shm::Process> processes_;
  std::mutex mutex_;  // guards what follows
  shm::Mail mail_;
  std::deque<Pending> pending_;
  std::vector<Handle> unused_;
  std::vector<Handles> unsent_;  // by peer: sends that had no room, oldest first
  std::vector<Handle> offered_;  // sends that stand in the table
  std::vector<std::uint32_t> free_places_;
  std::uint64_t offers_ = 0;        // so far
  Handles receives_;                // without a message, oldest first
  std::vector<Handle> copying_;     // receives
  std::vector<Arriving> arriving_;  // by peer
  std::list<Early> early_;          // oldest first
};

}  // namespace altorch
