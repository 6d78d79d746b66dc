// Messages through the memory that the ranks of a node share: copied into a ring when they are small, from the sender's
// memory when they are large and processes may do that, and part by part through the ring otherwise.
#pragma once

#include <deque>
#include <list>
#include <mutex>
#include <vector>

#include "transports/channel.h"
#include "transports/shm/mail.h"
#include "transports/shm/single_copy.h"

namespace altorch {

class ShmChannel : public Channel {
 public:
  // `memory`: that of `mail`, which lives as long as this. `processes`: by rank; none where they may not copy from
  // each other.
  ShmChannel(std::shared_ptr<std::byte> memory, shm::Mail mail, std::vector<shm::Process> processes);

  int rank() const override { return mail_.rank(); }
  int size() const override { return mail_.size(); }
  std::int64_t max_tag() const override { return (std::int64_t{1} << 62) - 1; }
  void send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  void receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override;
  State test(std::span<Request> requests, std::optional<Error>& error) override;
  // Nothing is left behind: only a receiver writes to its memory, in test(); a sender's is only read.
  bool cancel(std::span<Request> requests) override;

 private:
  // What a request that is not done stands for.
  struct Pending {
    bool is_receive = false, exact = true, done = false;
    int peer = 0;
    std::int64_t tag = 0;
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t bytes = 0;
    std::uint64_t offer = 0;  // of a large message that stands in its ring
    std::size_t sent = 0;     // through the ring
    bool given_up = false;    // half-way, and the peer does not know yet
    std::optional<Error> error;
  };
  // A message that came before its receive.
  struct Early {
    int peer;
    std::int64_t tag;
    shm::Frame frame;
    std::vector<std::byte> bytes;
  };

  Pending& open(Request& request);
  void close(Request& request);
  Pending& pending(const Request& request) { return pending_[request.handle - 1]; }
  bool post(Pending& message);
  void progress();
  bool post_offer(Pending& message);
  bool post_parts(Pending& message);
  void take_mail(int peer);
  void take_part(int peer, const shm::Frame& frame, const void* data);
  using Handles = std::list<std::uintptr_t>;
  Handles::iterator wanted(int peer, std::int64_t tag);
  // The message has met its receive.
  void deliver(Pending& receive, int peer, const shm::Frame& frame, const void* data);
  std::optional<Error> copy_offered(Pending& receive, int peer, const shm::Frame& frame);
  // All of it is there.
  static void conclude(Pending& receive, int peer, std::size_t bytes);

  // A message that comes in parts.
  struct Arriving {
    std::uintptr_t receive = 0;  // handle; 0 with no `early`: nobody wants it any more
    Early* early = nullptr;
    std::size_t got = 0;
  };

  const std::shared_ptr<std::byte> memory_;
  const std::vector<shm::Process> processes_;
  std::mutex mutex_;  // guards what follows
  shm::Mail mail_;
  std::deque<Pending> pending_;          // by request's handle - 1
  std::vector<std::uintptr_t> unused_;   // handles
  Handles receives_;                     // of receives without a message, oldest first
  std::vector<Handles> unsent_;          // by peer: of messages for which there was no room, oldest first
  std::vector<Arriving> arriving_;       // by peer
  std::vector<std::uintptr_t> offered_;  // handles of sends that stand in a table
  std::list<Early> early_;               // oldest first
  std::uint64_t offers_ = 0;
};

}  // namespace altorch
