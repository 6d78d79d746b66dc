// SPDX-License-Identifier: BSD-3-Clause
// The connection to one peer process over torch's Gloo, shared by all groups that both processes
// are in. It carries frames (a header and the bytes of a small message) and the bodies of large
// messages.
//
// Gloo ends the process if a message is larger than its receive, and it can wait for a message, but
// not test it. So a reader thread receives frames of a fixed maximum size. A large message is
// announced first: the sender sends a request frame, the receiver posts its receive and sends a
// clear frame, and the sender sends the body. A send or receive that is posted to Gloo therefore
// completes without help from the callers. A second thread waits for these operations, in order.
// start() starts both threads, so that no later call fails because a thread cannot be started.
// Thread rules: any thread; only the owner calls start() and stop().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <unordered_map>

#include "backend/gloo/event.h"
#include "base/error.h"
#include "platform/fast_exit.h"
#include "platform/native_thread.h"
#include "transports/channel.h"

namespace altorch::backend {

// A message of at most this size travels in its frame: two copies, but one message instead of three
// (request, clear, body).
inline constexpr std::size_t kGlooFrameBytes = 256 << 10;

// Flow control: a message above kGlooUncountedBytes travels in a frame only while the sender has
// credit for its bytes. The receiver returns the credit when a receive matches the message, or the
// message is dropped. This bounds the memory of unexpected messages at the receiver, and of unsent
// frames at the sender.
inline constexpr std::size_t kGlooUncountedBytes = 4 << 10;
inline constexpr std::size_t kGlooCreditBytes = 4 << 20;

// A message in flight. When `done` is true, its owner may read the other fields and release the
// buffer.
struct GlooTransfer {
  void* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0;  // kAnySource until a message is found
  std::uint64_t group = 0;
  std::int64_t tag = 0;
  ElementType type = 0;
  bool is_receive = false;
  bool exact = true;
  std::optional<Error> error;
  std::atomic<bool> done{false};

  void finish(std::optional<Error> outcome = std::nullopt) {
    error = std::move(outcome);
    done.store(true, std::memory_order_release);
    GlooEvent::instance().signal();
  }
};
using GlooTransferPtr = std::shared_ptr<GlooTransfer>;

// A message as its receiver first learns of it.
struct GlooArrival {
  int peer = 0;
  std::uint64_t group = 0;
  std::int64_t tag = 0;
  std::size_t bytes = 0;
  std::uint64_t type = 0;              // as its sender says
  std::uint64_t id = 0;                // of an announced message; 0: the bytes are here
  const std::byte* payload = nullptr;  // valid during the call
};

// Why an announced message is not taken.
enum class GlooRefusal : std::uint32_t { kUnfit, kGroupGone };

class GlooListener {
 public:
  virtual void arrived(const GlooArrival& arrival) = 0;
  // Nothing will arrive from this peer in this group any more.
  virtual void left(int peer, std::uint64_t group) = 0;
  // Nothing will arrive from this peer any more.
  virtual void lost(int peer) = 0;

 protected:
  ~GlooListener() = default;
};

class GlooPeer {
 public:
  // `global_rank` is for messages.
  GlooPeer(c10::intrusive_ptr<c10d::Backend> gloo, int peer, int global_rank, GlooListener& listener);
  ~GlooPeer();

  // Throws Error(kTransport) where no thread can be started.
  void start();
  // Waits until what was sent has left this process, or until the deadline.
  void flush(std::chrono::steady_clock::time_point deadline);
  void stop();

  // A small message: the bytes are copied. False when it must be announced, or the connection is
  // broken.
  bool send_now(const void* data, std::size_t bytes, std::uint64_t group, std::int64_t tag, ElementType type);
  void announce(const GlooTransferPtr& transfer);
  // Answers to a message that the peer announced.
  void accept(const GlooTransferPtr& transfer, const GlooArrival& arrival);
  void refuse(const GlooArrival& arrival, GlooRefusal why);
  // Returns the credit of a message that came in its frame, when a receive has matched it or it was
  // dropped.
  void consumed(std::size_t bytes);
  // This process has destroyed its part of a group.
  void leave(std::uint64_t group);

  // Takes an announced message back; false when its body is on its way.
  bool withdraw(const GlooTransferPtr& transfer);
  // Aborts a body that is partly transferred. The connection cannot be used afterwards.
  void break_off(const GlooTransferPtr& transfer);
  // Why nothing can be sent or received, or nothing.
  std::optional<Error> failure() const;

 private:
  enum class Kind : std::uint32_t { kMessage, kRequest, kClear, kRefused, kWithdrawn, kCredit, kLeave };
  struct Header {
    Kind kind;
    GlooRefusal why = GlooRefusal::kUnfit;  // kRefused
    std::uint64_t type = 0;                 // kMessage, kRequest
    std::uint64_t group = 0;
    std::int64_t tag = 0;
    std::uint64_t bytes = 0, id = 0;
  };
  // Something that Gloo works on.
  struct Posted {
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor tensor;
    GlooTransferPtr transfer;  // of a body
    std::uint64_t id = 0;
    std::optional<Error> reason;  // why it was aborted
  };

  bool send_frame(const Header& header, const void* payload, std::size_t bytes);
  bool post_body(const GlooTransferPtr& transfer, std::uint64_t id, std::size_t bytes);
  void keep(std::shared_ptr<Posted> posted);  // with mutex_ held
  void read();
  void dispatch(const at::Tensor& frame);
  void wait_for_posted();
  bool finisher_wanted() const;  // with mutex_ held
  void lose(const Error& error);
  void abort(const std::function<bool(const Posted&)>& chosen, const Error& reason);
  Error broken(const std::string& cause) const;

  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const int peer_, global_rank_;
  GlooListener& listener_;

  // Guards what follows. Held while something is posted to Gloo: this keeps the order of the posts,
  // and posting never blocks.
  mutable std::mutex mutex_;
  bool stopping_ = false, flushing_ = false;
  std::optional<Error> failure_;
  std::uint64_t last_id_ = 0;
  std::unordered_map<std::uint64_t, GlooTransferPtr> announced_;
  c10::intrusive_ptr<c10d::Work> reading_;
  std::deque<std::shared_ptr<Posted>> posted_;  // the head stays while it is waited for
  std::size_t bodies_ = 0;                      // of those posted
  std::size_t credit_ = kGlooCreditBytes;       // bytes that may yet be sent in frames
  std::size_t owed_ = 0;                        // of the peer's credit, to be given back
  std::int64_t kept_bytes_ = 0;                 // in frames
  std::condition_variable wake_, drained_;

  std::optional<NativeThread> reader_, finisher_;
  std::optional<DetachedThread> running_;  // they make tensors, and Gloo has threads of its own
};

}  // namespace altorch::backend
