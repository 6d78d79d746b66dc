// SPDX-License-Identifier: BSD-3-Clause
// Discrete-event simulation of one collective: computes when the last rank completes its schedule.
// Sends nothing. Invariant: messages start in the order of the times at which sender, receiver and
// ports are free; of several at the same time, the one posted first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/schedule.h"
#include "simulate/network.h"

namespace altorch {

// Thread rules: one thread.
class EventSimulation {
 public:
  // For network.ranks() ranks.
  EventSimulation(const Network& network, double element_bytes);
  ~EventSimulation();

  // Adds the next rank's schedule, rank 0's first. Keeps its messages, 16 bytes each, and of its
  // local steps the time alone.
  void add(const Schedule& schedule);
  // Makes room for so many messages, sent and received, and rounds of all ranks together.
  void reserve(std::size_t messages, std::size_t rounds);
  // Call once. Returns the seconds from the start, which all ranks have in common, to the end of
  // the last rank. Throws Error(kInternal) if sends and receives do not match. `progress`: called
  // from time to time with the share of messages that are done; an exception that it throws ends
  // the run.
  double run(const std::function<void(double)>& progress = {});
  // Of all ranks; a send and its receive count once.
  std::int64_t messages() const { return static_cast<std::int64_t>(messages_.size() / 2); }

 private:
  struct Message {
    std::int32_t peer;
    bool is_send;
    std::int64_t bytes;
  };
  struct RoundEnd {
    std::uint32_t messages;  // index in messages_ behind the round's last
    double local_seconds;
  };
  struct Rank {
    std::size_t round, last_round;  // indices in rounds_
    std::uint32_t message;          // index in messages_
    std::uint32_t in_flight = 0;
    double ready = 0;  // when all that this rank has finished was finished
    double send_port = 0, receive_port = 0;
  };
  struct Posted {
    std::int64_t bytes;
    double at;
    std::int64_t order;
  };
  struct Matched {
    double start;
    std::int64_t order;  // in which the sends were posted
    std::int32_t from, to;
    double posted;  // when both ends were ready
    std::int64_t bytes;
  };

  void begin_round(int rank);
  void post(int rank, const Message& message, double at);
  double start_of(const Matched& each) const;
  void carry(const Matched& each);
  void finish_one(int rank, double at);
  bool crosses(int from, int to) const { return network_.node_of(from) != network_.node_of(to); }

  const Network network_;
  const double element_bytes_;
  std::vector<Message> messages_;
  std::vector<RoundEnd> rounds_;
  std::vector<Rank> ranks_;
  std::vector<double> out_port_, in_port_;  // by node
  std::int64_t posted_ = 0;
  struct Queues;
  const std::unique_ptr<Queues> queues_;
};

}  // namespace altorch
