// SPDX-License-Identifier: BSD-3-Clause
#include "windows/relayed_window.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/leak_intentionally.h"
#include "base/log.h"

namespace altorch {
namespace {

enum RelayTag : std::int64_t { kMessageTag, kDataTag };

constexpr std::size_t kMaxSent = 32;                     // messages to a peer that are under way
constexpr int kMaxReceived = 32;                         // messages of a peer, in one turn
constexpr std::chrono::milliseconds kLastMessages{200};  // how long close() waits for peers

std::uint32_t count_of(const Flag& flag) {
  return std::atomic_ref(const_cast<std::uint32_t&>(flag.count)).load(std::memory_order_acquire);
}

// Raises the flag to `value` unless it is higher. Flag::raise() allows one writer, but end() may
// raise flags of this rank's streams at the same time.
void raise_beside_end(Flag& flag, std::uint32_t value) {
  const std::atomic_ref count(flag.count);
  std::uint32_t now = count.load(std::memory_order_acquire);
  while (static_cast<std::int32_t>(now - value) < 0 &&
         !count.compare_exchange_weak(now, value, std::memory_order_release, std::memory_order_acquire)) {
  }
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
      board_(staged_board()),
      peers_(static_cast<std::size_t>(ranks_)) {
  for (int peer = 0; peer < ranks_; ++peer) peers_[static_cast<std::size_t>(peer)].rank = peer;
  peers_[static_cast<std::size_t>(rank_)].step = Step::kEnded;
}

RelayedWindow::~RelayedWindow() {
  leave(/*agreed=*/false);
  cancel();
  if (!all_cancelled_) leak_intentionally(std::make_unique<std::vector<Peer>>(std::move(peers_)));
}

bool RelayedWindow::serve() {
  const std::unique_lock lock(relaying_, std::try_to_lock);
  if (!lock || closed_ || is_aborted()) return false;
  has_served_ = true;
  return relay();
}

bool RelayedWindow::relay() {
  bool moved = false;
  for (Peer& peer : peers_) {
    moved |= collect(peer);
    moved |= receive(peer);
  }
  moved |= DeviceWindow::serve();
  for (Peer& peer : peers_) moved |= send_on(peer);
  return moved;
}

// An error here, and in receive(), means that the peer or the group has ended. The threads that
// look after waits find that themselves.
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
  channel_.send(&sent.message, sizeof sent.message, peer.rank, tags_ + kMessageTag, sent.requests[0]);
  if (bytes > 0) channel_.send(data, bytes, peer.rank, tags_ + kDataTag, sent.requests[1]);
}

// Sends what this rank's streams have written into its board since the last call. A signal is
// written once the calls before it are answered, so it needs no order among the requests.
bool RelayedWindow::send_on(Peer& peer) {
  if (peer.step == Step::kEnded) return false;
  const std::size_t before = peer.sent.size();
  const auto has_room = [&] { return peer.sent.size() < kMaxSent; };
  for (std::uint32_t place = 0; place < StagedBoard::kLanes; ++place) {
    const int lane = static_cast<int>(place);
    std::uint32_t &asked = peer.asked[place], &answered = peer.answered[place];
    while (has_room() && board_.asked(rank_, lane, peer.rank).reached(asked + 1)) {
      const StagedBoard::Request& request = board_.request(rank_, lane, peer.rank, ++asked);
      send(peer, {Message::kRequest, place, asked, request}, board_.slot(rank_, lane, request.slot),
           bytes_there(request.asked));
    }
    while (has_room() && board_.answered(peer.rank, lane, rank_).reached(answered + 1)) {
      const StagedBoard::Request& request = board_.request(peer.rank, lane, rank_, ++answered);
      send(peer, {Message::kAnswer, place, answered, request}, board_.slot(peer.rank, lane, request.slot),
           bytes_back(request.asked));
    }
  }
  for (std::uint32_t slot = 0; slot < kSignalSlots && has_room(); ++slot) {
    const std::uint32_t count = count_of(board_signal(peer.rank, rank_, static_cast<int>(slot)));
    if (count == peer.signals[slot]) continue;
    peer.signals[slot] = count;
    send(peer, {Message::kSignal, slot, count, {}}, nullptr, 0);
  }
  return peer.sent.size() > before;
}

bool RelayedWindow::has_unsent(const Peer& peer) const {
  for (int lane = 0; lane < StagedBoard::kLanes; ++lane)
    if (board_.asked(rank_, lane, peer.rank).reached(peer.asked[static_cast<std::size_t>(lane)] + 1))
      return true;
  for (std::size_t slot = 0; slot < kSignalSlots; ++slot)
    if (count_of(board_signal(peer.rank, rank_, static_cast<int>(slot))) != peer.signals[slot]) return true;
  return false;
}

bool RelayedWindow::receive(Peer& peer) {
  bool moved = false;
  for (int turn = 0; turn < kMaxReceived && peer.step != Step::kEnded; ++turn) {
    if (peer.step == Step::kIdle) {
      channel_.receive(&peer.message, sizeof peer.message, peer.rank, tags_ + kMessageTag, peer.request[0]);
      peer.step = Step::kAwaitsMessage;
    }
    std::optional<Error> error;
    const State state = channel_.test(peer.request, error);
    if (state == State::kPending) return moved;
    if (state == State::kFailed) {  // nothing has come, and a second test() would not say so
      all_cancelled_ = channel_.cancel(peer.request) && all_cancelled_;
      peer.step = Step::kEnded;
      return moved;
    }
    moved = true;
    if (peer.step == Step::kAwaitsData) {
      write(peer);
    } else if (!accept(peer)) {
      log(LogLevel::kError,
          "rank " + std::to_string(peer.rank) +
              " of a group has sent an invalid message about a window on a GPU; report this");
      peer.step = Step::kEnded;
    }
  }
  return moved;
}

// Checks the message before anything of it is written into the board.
bool RelayedWindow::accept(Peer& peer) {
  const Message& message = peer.message;
  const bool signals = message.kind == Message::kSignal;
  if (message.kind == Message::kLeave) {
    left(peer.rank).raise(1);
    peer.step = Step::kEnded;
    return true;
  }
  if (message.place >= (signals ? std::uint32_t{kSignalSlots} : std::uint32_t{StagedBoard::kLanes}))
    return false;
  const int lane = static_cast<int>(message.place);
  if (signals) {
    write(peer);
  } else if (message.kind == Message::kRequest) {
    const std::uint32_t before = count_of(board_.asked(peer.rank, lane, rank_));
    if (message.number != before + 1 || !fits_in_slot(message.request)) return false;
    await_data(peer, board_.slot(peer.rank, lane, message.request.slot), bytes_there(message.request.asked));
  } else {
    const std::uint32_t sent = peer.asked[message.place];
    if (message.kind != Message::kAnswer || message.number != peer.received[message.place] + 1 ||
        static_cast<std::int32_t>(sent - message.number) < 0)
      return false;
    const StagedBoard::Request& own = board_.request(rank_, lane, peer.rank, message.number);
    await_data(peer, board_.slot(rank_, lane, own.slot), bytes_back(own.asked));
  }
  return true;
}

void RelayedWindow::await_data(Peer& peer, std::byte* data, std::size_t bytes) {
  if (bytes == 0) return write(peer);
  channel_.receive(data, bytes, peer.rank, tags_ + kDataTag, peer.request[0]);
  peer.step = Step::kAwaitsData;
}

// Writes the message into this rank's board.
void RelayedWindow::write(Peer& peer) {
  const Message& message = peer.message;
  const int place = static_cast<int>(message.place);
  peer.step = Step::kIdle;
  if (message.kind == Message::kSignal) {
    raise_beside_end(board_signal(rank_, peer.rank, place), message.number);
  } else if (message.kind == Message::kRequest) {
    StagedBoard::Request& request = board_.request(peer.rank, place, rank_, message.number);
    request = message.request;
    request.number = message.number;
    board_.asked(peer.rank, place, rank_).raise(message.number);
  } else {
    peer.received[message.place] = message.number;
    board_.request(rank_, place, peer.rank, message.number).found = message.request.found;
    raise_beside_end(board_.answered(rank_, place, peer.rank), message.number);
  }
}

// First the last messages: once DeviceWindow has closed, the board says what has not happened.
bool RelayedWindow::close(bool agreed) {
  leave(agreed);
  const bool past = DeviceWindow::close(agreed);
  cancel();
  return past && all_cancelled_;
}

// The messages before it hold signals that a peer may wait for. So, if all ranks close the window,
// this rank goes on receiving until each peer has left.
void RelayedWindow::leave(bool agreed) {
  const std::lock_guard lock(relaying_);
  if (std::exchange(closed_, true)) return;
  // Nothing of it was used or served. It may not have been opened on all ranks, which then know
  // nothing of it. A program that has used it may be faster than the first serve().
  const auto is_unused = [&](const Peer& peer) { return !has_unsent(peer); };
  if (!agreed && !has_served_ && std::ranges::all_of(peers_, is_unused)) return;
  try {
    if (!is_aborted()) relay();
    for (Peer& peer : peers_) {
      if (peer.rank != rank_) send(peer, {}, nullptr, 0);
    }
    const auto has_left = [&](Peer& peer) {
      collect(peer);
      if (agreed) receive(peer);
      return peer.sent.empty() && (!agreed || peer.step == Step::kEnded);
    };
    const auto until = std::chrono::steady_clock::now() + kLastMessages;
    const auto count = [&] { return std::ranges::count_if(peers_, has_left); };
    while (count() < std::ssize(peers_) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  } catch (const Error&) {  // a transport failed; the window closes all the same
  }
}

// What is being sent lies in memory that lives on if it cannot be cancelled.
void RelayedWindow::cancel() {
  const std::lock_guard lock(relaying_);
  if (std::exchange(cancelled_, true)) return;
  for (Peer& peer : peers_) {
    all_cancelled_ = channel_.cancel(peer.request) && all_cancelled_;
    for (const auto& sent : peer.sent) all_cancelled_ = channel_.cancel(sent->requests) && all_cancelled_;
  }
  if (!all_cancelled_) leak_intentionally(std::make_unique<std::shared_ptr<Memory>>(memory_));
}

}  // namespace altorch
