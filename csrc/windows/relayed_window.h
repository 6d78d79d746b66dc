// SPDX-License-Identifier: BSD-3-Clause
// Windows on GPUs of ranks that share no memory, such as those of several nodes. Each rank has its
// own board (staged_board.h). Its host sends what streams write there to the peers, as messages of
// the group. The peer's host writes it into the peer's board, where the peer's streams wait for it:
//
//   origin's stream   copy to the slot, raise(asked) ...            wait(answered), copy out of it
//   origin's host                    message, data ->             <- raise(answered)
//   target's host                                 raise(asked)     message, data ->
//   target's stream                                     copy, add or count, raise(answered)
//
// The progress threads of both ranks have to call serve(). Thread rules: those of DeviceWindow.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transports/channel.h"
#include "windows/device_window.h"

namespace altorch {

class RelayedWindow : public DeviceWindow {
 public:
  // `place`: a lane, or a slot of signals. `number`: of the request, or the count of signals.
  struct Message {
    enum Kind : std::uint32_t { kRequest, kAnswer, kSignal, kLeave };
    std::uint32_t kind = kLeave, place = 0, number = 0;
    StagedBoard::Request request = {};
  };

  // `memory`: with boards of this rank alone. `tags`: the first of two tags that no other messages
  // use.
  RelayedWindow(Memory memory, int rank, const Registered& own, OnError on_error, Channel& channel,
                std::int64_t tags);
  ~RelayedWindow() override;

  const char* name() const override { return "host_relay"; }
  bool serve() override;
  bool close(bool agreed) override;

 private:
  struct Sent {
    Message message;
    std::array<Request, 2> requests;  // the message, its data
  };
  enum class Step { kIdle, kAwaitsMessage, kAwaitsData, kEnded };
  struct Peer {
    int rank = 0;
    Step step = Step::kIdle;
    Message message;  // received last
    std::array<Request, 1> request;
    std::deque<std::unique_ptr<Sent>> sent;
    // The numbers of the last requests and answers that were sent, by lane, and the counts of
    // signals, by slot.
    std::array<std::uint32_t, StagedBoard::kLanes> asked{}, answered{};
    std::array<std::uint32_t, kSignalSlots> signals{};
    // The number of the last answer that was received, by lane.
    std::array<std::uint32_t, StagedBoard::kLanes> received{};
  };

  bool relay();
  bool collect(Peer& peer);
  bool send_on(Peer& peer);
  // Whether this rank's streams have written something for the peer that is not sent yet.
  bool has_unsent(const Peer& peer) const;
  bool receive(Peer& peer);
  // False: the message is invalid.
  bool accept(Peer& peer);
  void write(Peer& peer);
  void send(Peer& peer, const Message& message, const std::byte* data, std::size_t bytes);
  void await_data(Peer& peer, std::byte* data, std::size_t bytes);
  // Sends the last messages and, if `agreed`, receives those of the peers.
  void leave(bool agreed);
  void cancel();

  Channel& channel_;
  const std::int64_t tags_;
  const StagedBoard board_;
  std::mutex relaying_;  // guards what follows
  std::vector<Peer> peers_;
  bool has_served_ = false, closed_ = false, cancelled_ = false, all_cancelled_ = true;
};

}  // namespace altorch
