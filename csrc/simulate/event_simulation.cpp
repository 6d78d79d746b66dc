// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/event_simulation.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "simulate/schedules.h"

namespace altorch {

// What has been posted: messages whose other end has not, by sender and receiver, and those of
// which both ends have.
struct EventSimulation::Queues {
  struct Waiting {
    bool are_sends;
    std::deque<Posted> posted;
  };
  struct StartsLater {
    bool operator()(const Matched& one, const Matched& other) const {
      return one.start != other.start ? one.start > other.start : one.order > other.order;
    }
  };
  std::unordered_map<std::uint64_t, Waiting> waiting;
  std::priority_queue<Matched, std::vector<Matched>, StartsLater> matched;
};

EventSimulation::EventSimulation(const Network& network, double element_bytes)
    : network_(network),
      element_bytes_(element_bytes),
      out_port_(static_cast<std::size_t>(network.nodes)),
      in_port_(static_cast<std::size_t>(network.nodes)),
      queues_(std::make_unique<Queues>()) {}

EventSimulation::~EventSimulation() = default;

void EventSimulation::reserve(std::size_t messages, std::size_t rounds) {
  messages_.reserve(messages);
  rounds_.reserve(rounds);
}

void EventSimulation::add(const Schedule& schedule) {
  const auto first = static_cast<std::uint32_t>(messages_.size());
  const std::size_t first_round = rounds_.size();
  const auto bytes_of = [&](std::int64_t count) {
    return static_cast<std::int64_t>(static_cast<double>(count) * element_bytes_);
  };
  for (const Round& round : schedule.rounds) {
    const double reduced = static_cast<double>(reduced_elements(schedule, round)) * element_bytes_;
    for (auto i = round.messages_begin; i < round.messages_end; ++i) {
      const Step& step = schedule.steps[i];
      messages_.push_back({step.peer, step.kind == StepKind::kSend, bytes_of(step.a.count)});
    }
    rounds_.push_back({static_cast<std::uint32_t>(messages_.size()), network_.gamma * reduced});
  }
  ranks_.push_back({.round = first_round, .last_round = rounds_.size(), .message = first});
}

double EventSimulation::run(const std::function<void(double)>& progress) {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) begin_round(rank);
  std::int64_t carried = 0;
  auto& matched = queues_->matched;
  while (!matched.empty()) {
    Matched first = matched.top();
    matched.pop();
    const double start = start_of(first);
    if (start > first.start) {  // a port was taken since
      first.start = start;
      matched.push(first);
      continue;
    }
    carry(first);
    if (++carried % (1 << 16) == 0 && progress)
      progress(static_cast<double>(carried) / static_cast<double>(messages()));
  }
  double end = 0;
  for (const Rank& rank : ranks_) {
    if (rank.round != rank.last_round)
      throw Error(ErrorKind::kInternal, "simulation: the messages of the ranks do not match");
    end = std::max(end, rank.ready);
  }
  return end;
}

// Rounds without messages end at once.
void EventSimulation::begin_round(int r) {
  Rank& rank = ranks_[static_cast<std::size_t>(r)];
  for (; rank.round < rank.last_round; ++rank.round) {
    const RoundEnd& round = rounds_[rank.round];
    const double posted = rank.ready;
    rank.ready += round.local_seconds;
    rank.in_flight = round.messages - rank.message;
    if (rank.in_flight == 0) continue;
    const std::uint32_t begin = rank.message;
    rank.message = round.messages;
    for (auto i = begin; i < round.messages; ++i) post(r, messages_[i], posted);
    return;
  }
}

void EventSimulation::post(int rank, const Message& message, double at) {
  const std::int32_t from = message.is_send ? rank : message.peer, to = message.is_send ? message.peer : rank;
  const auto pair =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 | static_cast<std::uint32_t>(to);
  const Posted own{message.bytes, at, ++posted_};
  const auto found = queues_->waiting.try_emplace(pair, Queues::Waiting{message.is_send, {}}).first;
  Queues::Waiting& waiting = found->second;
  if (waiting.are_sends == message.is_send) {
    waiting.posted.push_back(own);
    return;
  }
  const Posted other = waiting.posted.front();
  waiting.posted.pop_front();
  if (waiting.posted.empty()) queues_->waiting.erase(found);
  if (other.bytes != message.bytes)
    throw Error(ErrorKind::kInternal, "simulation: sender and receiver disagree on the length of a message");
  Matched matched{
      0, message.is_send ? own.order : other.order, from, to, std::max(at, other.at), message.bytes};
  matched.start = start_of(matched);
  queues_->matched.push(matched);
}

double EventSimulation::start_of(const Matched& each) const {
  double start = std::max({each.posted, ranks_[static_cast<std::size_t>(each.from)].send_port,
                           ranks_[static_cast<std::size_t>(each.to)].receive_port});
  if (crosses(each.from, each.to)) {
    start = std::max({start, out_port_[static_cast<std::size_t>(network_.node_of(each.from))],
                      in_port_[static_cast<std::size_t>(network_.node_of(each.to))]});
  }
  return start;
}

void EventSimulation::carry(const Matched& each) {
  const bool far = crosses(each.from, each.to);
  const double bytes = static_cast<double>(each.bytes);
  const double per_byte = far ? std::max(network_.rank_beta, network_.beta) : network_.on_node_beta;
  const double end = each.start + (far ? network_.alpha : network_.on_node_alpha) + bytes * per_byte;
  if (far) {
    const double port_free = each.start + bytes * network_.beta;
    out_port_[static_cast<std::size_t>(network_.node_of(each.from))] = port_free;
    in_port_[static_cast<std::size_t>(network_.node_of(each.to))] = port_free;
  }
  ranks_[static_cast<std::size_t>(each.from)].send_port = end;
  ranks_[static_cast<std::size_t>(each.to)].receive_port = end;
  finish_one(each.from, end);
  finish_one(each.to, end);
}

void EventSimulation::finish_one(int r, double at) {
  Rank& rank = ranks_[static_cast<std::size_t>(r)];
  rank.ready = std::max(rank.ready, at);
  if (--rank.in_flight > 0) return;
  ++rank.round;
  begin_round(r);
}

}  // namespace altorch
