// SPDX-License-Identifier: BSD-3-Clause
#include "windows/relayed_window.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/leak_intentionally.h"
#include "base/log.h"

namespace altorch {
namespace {

enum RelayTag : std::int64_t { kMessages, kRelayData };

constexpr std::size_t kMostMessages = 32;  // to a peer, at once
constexpr int kMessagesAtOnce = 32;        // of a peer
constexpr std::chrono::milliseconds kLastMessages{200};

std::uint32_t count_of(const Flag& flag) {
  return std::atomic_ref(const_cast<std::uint32_t&>(flag.count)).load(std::memory_order_acquire);
}

// The data that go to the target, or come back.
std::size_t bytes_there(const WindowRequest& asked) {
  return kAccesses[static_cast<Access>(asked.access)].reads_data ? asked.row_bytes * asked.rows : 0;
}
std::size_t bytes_back(const WindowRequest& asked) {
  return kAccesses[static_cast<Access>(asked.access)].writes_data ? asked.row_bytes * asked.rows : 0;
}

bool fits_in_slot(const StagedBoard::Request& request) {
  const WindowRequest& asked = request.asked;
  return asked.access < kCountOf<Access> && request.slot < StagedBoard::kSlots &&
         (asked.rows == 0 || asked.row_bytes <= StagedBoard::kSlotBytes / asked.rows);
}

}  // namespace

RelayedWindow::RelayedWindow(Memory memory, int rank, const Registered& own, OnError on_error,
                             Channel& channel, std::int64_t tags)
    : DeviceWindow(std::move(memory), rank, own, on_error, /*co_resident=*/false,
                   std::vector<std::string>(static_cast<std::size_t>(channel.size()))),
      channel_(channel),
      tags_(tags),
      board_(memory_->staged, ranks_),
      peers_(static_cast<std::size_t>(ranks_)) {
  for (int peer = 0; peer < ranks_; ++peer) peers_[static_cast<std::size_t>(peer)].rank = peer;
}

RelayedWindow::~RelayedWindow() {
  close_channel(/*agreed=*/false);
  if (free_) return;
  for (Peer& peer : peers_) leak_intentionally(std::make_unique<Peer>(std::move(peer)));
}

bool RelayedWindow::serve() {
  bool moved = DeviceWindow::serve();
  const std::unique_lock lock(relaying_, std::try_to_lock);
  if (!lock || closed_ || is_aborted()) return moved;
  for (Peer& peer : peers_) {
    if (peer.rank == rank_) continue;
    moved |= collect(peer);
    moved |= send_on(peer);
    moved |= receive(peer);
  }
  return moved;
}

// An error here means that the peer or the group has ended; the threads that wait for it find that
// themselves.
bool RelayedWindow::collect(Peer& peer) {
  bool moved = false;
  std::optional<Error> error;
  while (!peer.sent.empty() && channel_.test(peer.sent.front()->requests, error) == State::kDone) {
    peer.sent.pop_front();
    moved = true;
  }
  return moved;
}

void RelayedWindow::send(Peer& peer, const Message& message, const std::byte* data, std::size_t bytes) {
  peer.sent.push_back(std::make_unique<Sent>());
  Sent& sent = *peer.sent.back();
  sent.message = message;
  channel_.send(&sent.message, sizeof sent.message, peer.rank, tags_ + kMessages, sent.requests[0]);
  if (bytes > 0) channel_.send(data, bytes, peer.rank, tags_ + kRelayData, sent.requests[1]);
}

// What this rank's streams have written into its board since the last time. A signal is written
// when the calls before it are answered, so it needs no place among the requests.
bool RelayedWindow::send_on(Peer& peer) {
  const std::size_t before = peer.sent.size();
  const auto has_room = [&] { return peer.sent.size() < kMostMessages; };
  for (std::uint32_t place = 0; place < StagedBoard::kLanes; ++place) {
    const int lane = static_cast<int>(place);
    std::uint32_t &asked = peer.asked[place], &answered = peer.answered[place];
    while (has_room() && board_.asked(rank_, lane, peer.rank).reached(asked + 1)) {
      const StagedBoard::Request& request = board_.request(rank_, lane, peer.rank, ++asked);
      send(peer, {Message::kAsks, place, asked, request}, board_.slot(rank_, lane, request.slot),
           bytes_there(request.asked));
    }
    while (has_room() && board_.answered(peer.rank, lane, rank_).reached(answered + 1)) {
      const StagedBoard::Request& request = board_.request(peer.rank, lane, rank_, ++answered);
      send(peer, {Message::kAnswers, place, answered, request}, board_.slot(peer.rank, lane, request.slot),
           bytes_back(request.asked));
    }
  }
  for (std::uint32_t slot = 0; slot < kSignalSlots && has_room(); ++slot) {
    const std::uint32_t count = count_of(board_signal(peer.rank, rank_, static_cast<int>(slot)));
    if (count == peer.signals[slot]) continue;
    peer.signals[slot] = count;
    send(peer, {Message::kSignals, slot, count, {}}, nullptr, 0);
  }
  return peer.sent.size() > before;
}

bool RelayedWindow::receive(Peer& peer) {
  bool moved = false;
  for (int time = 0; time < kMessagesAtOnce && peer.step != Step::kOver; ++time) {
    if (peer.step == Step::kIdle) {
      channel_.receive(&peer.message, sizeof peer.message, peer.rank, tags_ + kMessages, peer.request[0]);
      peer.step = Step::kAwaitsMessage;
    }
    std::optional<Error> error;
    if (channel_.test(peer.request, error) != State::kDone) return moved;
    moved = true;
    if (peer.step == Step::kAwaitsData) {
      write(peer);
    } else if (!accept(peer)) {
      log(LogLevel::kError, "what rank " + std::to_string(peer.rank) +
                                " of a group says of a window on a GPU makes no sense; report this");
      peer.step = Step::kOver;
    }
  }
  return moved;
}

// The peer has not been checked, so nothing is believed but what this rank's own board bears out.
bool RelayedWindow::accept(Peer& peer) {
  const Message& message = peer.message;
  const bool signals = message.kind == Message::kSignals;
  if (message.kind == Message::kLeaves) {
    left(peer.rank).raise(1);
    peer.step = Step::kOver;
    return true;
  }
  if (message.place >= (signals ? std::uint32_t{kSignalSlots} : std::uint32_t{StagedBoard::kLanes}))
    return false;
  const int lane = static_cast<int>(message.place);
  if (signals) {
    write(peer);
  } else if (message.kind == Message::kAsks) {
    const std::uint32_t before = count_of(board_.asked(peer.rank, lane, rank_));
    if (message.number != before + 1 || !fits_in_slot(message.request)) return false;
    await(peer, board_.slot(peer.rank, lane, message.request.slot), bytes_there(message.request.asked));
  } else {
    const std::uint32_t sent = peer.asked[message.place];
    if (message.kind != Message::kAnswers || message.number != peer.heard[message.place] + 1 ||
        static_cast<std::int32_t>(sent - message.number) < 0)
      return false;
    const StagedBoard::Request& own = board_.request(rank_, lane, peer.rank, message.number);
    await(peer, board_.slot(rank_, lane, own.slot), bytes_back(own.asked));
  }
  return true;
}

// Receives what follows the message, if anything does.
void RelayedWindow::await(Peer& peer, std::byte* data, std::size_t bytes) {
  if (bytes == 0) return write(peer);
  channel_.receive(data, bytes, peer.rank, tags_ + kRelayData, peer.request[0]);
  peer.step = Step::kAwaitsData;
}

// Writes a message into this rank's board.
void RelayedWindow::write(Peer& peer) {
  const Message& message = peer.message;
  const int place = static_cast<int>(message.place);
  peer.step = Step::kIdle;
  if (message.kind == Message::kSignals) {
    board_signal(rank_, peer.rank, place).raise(message.number);
  } else if (message.kind == Message::kAsks) {
    board_.request(peer.rank, place, rank_, message.number) = message.request;
    board_.asked(peer.rank, place, rank_).raise(message.number);
  } else {
    peer.heard[message.place] = message.number;
    board_.request(rank_, place, peer.rank, message.number).found = message.request.found;
    board_.answered(rank_, place, peer.rank).raise(message.number);
  }
}

bool RelayedWindow::close(bool agreed) {
  const bool past = DeviceWindow::close(agreed);
  close_channel(agreed);
  return past && free_;
}

// Tells all peers, unless they know, that this rank answers no more.
void RelayedWindow::close_channel(bool agreed) {
  const std::lock_guard lock(relaying_);
  if (closed_) return;
  closed_ = true;
  std::vector<Request> last(peers_.size());
  static const Message kLeaves;
  for (const Peer& peer : peers_) {
    if (!agreed && peer.rank != rank_)
      channel_.send(&kLeaves, sizeof kLeaves, peer.rank, tags_ + kMessages,
                    last[static_cast<std::size_t>(peer.rank)]);
  }
  std::optional<Error> error;
  const auto until = std::chrono::steady_clock::now() + kLastMessages;
  const auto are_sent = [&] {
    bool sent = channel_.test(last, error) == State::kDone;
    for (Peer& peer : peers_) {
      collect(peer);
      sent &= peer.sent.empty();
    }
    return sent;
  };
  while (!are_sent() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  free_ = channel_.cancel(last);
  for (Peer& peer : peers_) {
    free_ = channel_.cancel(peer.request) && free_;
    for (const auto& sent : peer.sent) free_ = channel_.cancel(sent->requests) && free_;
  }
  if (!free_) leak_intentionally(std::make_unique<std::shared_ptr<DeviceWindow::Memory>>(memory_));
}

}  // namespace altorch
