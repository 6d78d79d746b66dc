// SPDX-License-Identifier: BSD-3-Clause
#include "transports/message_window.h"

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/leak_intentionally.h"
#include "transports/window_request.h"

namespace altorch {
namespace {

enum Tag : std::int64_t { kRequest, kDataThere, kAnswer, kDataBack };

constexpr std::uint8_t kLeaves = 255;  // as access: the rank ends its group, and answers no more
constexpr std::chrono::milliseconds kLastWords{200};
struct Answer {
  std::uint64_t refused;
  std::int64_t found;
};

}  // namespace

// The requests of one rank.
struct MessageWindow::Server {
  enum class Step { kIdle, kAwaitsRequest, kAwaitsData, kAnswers, kOver };
  int source = 0;
  Step step = Step::kIdle;
  WindowRequest asked{};
  Answer answer{};
  WindowCall call;
  std::vector<std::byte> data;  // that cannot be received, or sent, where it belongs
  std::array<Request, 2> requests;
  std::array<std::atomic<std::uint64_t>, kSignalSlots> signals{};
  std::atomic<bool> left{false};
};

// A request of this rank.
struct MessageWindow::Asked : WindowCall::State {
  WindowRequest asking{};
  Answer answer{};
  std::array<Request, 4> requests;
};

MessageWindow::MessageWindow(Channel& channel, std::int64_t tags, std::byte* memory, std::size_t bytes)
    : channel_(channel), tags_(tags), memory_(memory), bytes_(bytes) {
  for (int rank = 0; rank < channel.size(); ++rank) {
    servers_.push_back(std::make_unique<Server>());  // this rank's own for its signals
    servers_.back()->source = rank;
  }
}

MessageWindow::~MessageWindow() {
  if (MessageWindow::close(false)) return;
  for (auto& server : servers_) leak_intentionally(std::move(server));
}

std::uint64_t MessageWindow::signals(int source, int slot) const {
  return servers_[static_cast<std::size_t>(source)]->signals[static_cast<std::size_t>(slot)].load(
      std::memory_order_acquire);
}

bool MessageWindow::has_left(int rank) const {
  return servers_[static_cast<std::size_t>(rank)]->left.load(std::memory_order_acquire);
}

State MessageWindow::begin(WindowCall& call, std::optional<Error>& error) {
  if (call.peer == channel_.rank()) {
    const std::lock_guard lock(serving_);
    if (closed_) {
      error = Error(ErrorKind::kClosed, "the window is closed");
      return State::kFailed;
    }
    access_memory(call, memory_);
    if (call.slot != kNoSlot)
      servers_[static_cast<std::size_t>(call.peer)]->signals[static_cast<std::size_t>(call.slot)].fetch_add(
          1, std::memory_order_release);
    return State::kDone;
  }
  auto state = std::make_unique<Asked>();
  state->asking = WindowRequest::of(call);
  Asked& asked = *state;
  call.state = std::move(state);
  {
    const std::lock_guard lock(asking_);
    channel_.receive(&asked.answer, sizeof asked.answer, call.peer, tags_ + kAnswer, asked.requests[0]);
    if (kAccesses[call.access].writes_data && call.bytes() > 0)
      channel_.receive(call.into, call.bytes(), call.peer, tags_ + kDataBack, asked.requests[1]);
    channel_.send(&asked.asking, sizeof asked.asking, call.peer, tags_ + kRequest, asked.requests[2]);
    if (kAccesses[call.access].reads_data && call.bytes() > 0)
      channel_.send(call.from, call.bytes(), call.peer, tags_ + kDataThere, asked.requests[3]);
  }
  return test(call, error);
}

State MessageWindow::test(WindowCall& call, std::optional<Error>& error) {
  auto& asked = static_cast<Asked&>(*call.state);
  const bool left = has_left(call.peer);  // first: its last answer comes before
  const State state = channel_.test(asked.requests, error);
  if (state == State::kPending && left) {
    error = window_left_by(call.peer);
    return State::kFailed;
  }
  if (state != State::kDone) return state;
  if (asked.answer.refused) {
    error =
        Error(ErrorKind::kInternal, "rank " + std::to_string(call.peer) +
                                        " of the group refuses what lies outside its window; report this");
    return State::kFailed;
  }
  call.found = asked.answer.found;
  call.state.reset();
  return State::kDone;
}

bool MessageWindow::cancel(WindowCall& call) {
  if (!call.state) return true;
  if (channel_.cancel(static_cast<Asked&>(*call.state).requests)) return true;
  leak_intentionally(std::move(call.state));
  return false;
}

bool MessageWindow::serve() {
  const std::unique_lock lock(serving_, std::try_to_lock);
  if (!lock || closed_) return false;
  bool moved = false;
  for (const auto& server : servers_) {
    if (server->source != channel_.rank()) moved |= serve(*server);
  }
  return moved;
}

// Carries out the requests of one rank that have arrived, a few at a time.
bool MessageWindow::serve(Server& server) {
  using Step = Server::Step;
  bool moved = false;
  if (server.step == Step::kOver) return false;
  for (int turns = 0; turns < 16; ++turns) {
    if (server.step == Step::kIdle) {
      channel_.receive(&server.asked, sizeof server.asked, server.source, tags_ + kRequest,
                       server.requests[0]);
      server.step = Step::kAwaitsRequest;
    }
    std::optional<Error> error;
    const State state = channel_.test(server.requests, error);
    if (state == State::kPending) return moved;
    // The peer or the group has ended; the threads that wait for it find that themselves. Nothing
    // has come, and a second test() would not say so.
    if (state == State::kFailed) {
      free_ = channel_.cancel(server.requests) && free_;
      server.step = Step::kOver;
      return moved;
    }
    moved = true;
    if (server.step == Step::kAwaitsRequest) {
      carry_out(server);
      if (server.step == Step::kOver) return true;
    } else if (server.step == Step::kAwaitsData) {
      access_memory(server.call, memory_);
      answer(server);
    } else {
      server.step = Step::kIdle;
    }
  }
  return moved;
}

void MessageWindow::carry_out(Server& server) {
  const WindowRequest& asked = server.asked;
  if (asked.access == kLeaves) {
    server.step = Server::Step::kOver;
    server.left.store(true, std::memory_order_release);
    return;
  }
  server.answer = {};
  server.call = {};
  WindowCall& call = server.call;
  if (!asked.fits(bytes_)) {
    server.answer.refused = 1;
    return answer(server);
  }
  call = asked.call();
  const AccessTraits& traits = kAccesses[call.access];
  // What is one block is received, and sent, where it lies.
  const bool in_place = call.rows <= 1 && !is_atomic(call.access);
  std::byte* block = memory_ + call.offset;
  if (!in_place && (traits.reads_data || traits.writes_data)) {
    server.data.resize(call.bytes());
    block = server.data.data();
  }
  call.from = call.into = block;
  if (traits.reads_data && call.bytes() > 0) {
    channel_.receive(block, call.bytes(), server.source, tags_ + kDataThere, server.requests[0]);
    if (in_place) call.rows = 0;  // nothing is left to be done with it
    server.step = Server::Step::kAwaitsData;
    return;
  }
  if (!in_place || !traits.writes_data) access_memory(call, memory_);
  answer(server);
}

void MessageWindow::answer(Server& server) {
  const WindowCall& call = server.call;
  if (call.slot != kNoSlot)
    server.signals[static_cast<std::size_t>(call.slot)].fetch_add(1, std::memory_order_release);
  server.answer.found = call.found;
  channel_.send(&server.answer, sizeof server.answer, server.source, tags_ + kAnswer, server.requests[0]);
  if (kAccesses[call.access].writes_data && call.bytes() > 0 && !server.answer.refused)
    channel_.send(call.into, call.bytes(), server.source, tags_ + kDataBack, server.requests[1]);
  server.step = Server::Step::kAnswers;
}

// Tells all peers that this rank answers no more: a peer that waits for an answer, or asks later,
// then gets an error.
void MessageWindow::take_leave() {
  static const WindowRequest kLeave = [] {
    WindowRequest leave;
    leave.access = kLeaves;
    return leave;
  }();
  std::vector<Request> requests(servers_.size());
  for (int rank = 0; rank < channel_.size(); ++rank) {
    if (rank != channel_.rank())
      channel_.send(&kLeave, sizeof kLeave, rank, tags_ + kRequest, requests[static_cast<std::size_t>(rank)]);
  }
  std::optional<Error> error;
  const auto until = std::chrono::steady_clock::now() + kLastWords;
  while (channel_.test(requests, error) == State::kPending && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  channel_.cancel(requests);  // what is sent lives as long as the process
}

// The last answers may still be on their way.
bool MessageWindow::close(bool agreed) {
  const std::lock_guard lock(serving_);
  if (closed_) return free_;
  closed_ = true;
  if (!agreed) take_leave();
  for (auto& server : servers_) free_ = channel_.cancel(server->requests) && free_;
  return free_;
}

}  // namespace altorch
