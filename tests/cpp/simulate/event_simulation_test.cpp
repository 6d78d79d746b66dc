// SPDX-License-Identifier: BSD-3-Clause
// tests/cpp/collectives/cost_test.cpp compares it with the formulas of all algorithms.
#include "simulate/event_simulation.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace altorch {
namespace {

// One round of messages, in elements.
Schedule round_of(std::vector<Step> steps) {
  Schedule schedule;
  schedule.steps = std::move(steps);
  const auto end = static_cast<std::uint32_t>(schedule.steps.size());
  schedule.rounds.push_back({0, end, end, end});
  return schedule;
}
Step send_to(int peer, std::int64_t count) {
  return {StepKind::kSend, peer, {Region::kInput, 0, count}, {}, {}};
}
Step receive_from(int peer, std::int64_t count) {
  return {StepKind::kReceive, peer, {Region::kOutput, 0, count}, {}, {}};
}

TEST(EventSimulation, ARankSendsOneMessageAfterAnother) {
  EventSimulation events({.nodes = 3, .alpha = 1, .beta = 0.5, .rank_beta = 0}, 2);
  events.add(round_of({send_to(1, 4), send_to(2, 4)}));
  events.add(round_of({receive_from(0, 4)}));
  events.add(round_of({receive_from(0, 4)}));
  EXPECT_DOUBLE_EQ(events.run(), 2 * (1 + 8 * 0.5));
  EXPECT_EQ(events.messages(), 2);
}

TEST(EventSimulation, RanksOfANodeShareItsPort) {
  const Network network{.nodes = 2,
                        .per_node = 2,
                        .alpha = 1,
                        .beta = 0.5,
                        .rank_beta = 0,
                        .on_node_alpha = 0,
                        .on_node_beta = 0};
  EventSimulation events(network, 1);
  events.add(round_of({send_to(2, 8)}));
  events.add(round_of({send_to(3, 8)}));
  events.add(round_of({receive_from(0, 8)}));
  events.add(round_of({receive_from(1, 8)}));
  EXPECT_DOUBLE_EQ(events.run(), 4 + 1 + 4);  // the second begins when the port is free
}

TEST(EventSimulation, MessagesOnANodeDoNotUseThePort) {
  const Network network{.nodes = 1, .per_node = 2, .alpha = 100, .on_node_alpha = 1, .on_node_beta = 1};
  EventSimulation events(network, 1);
  events.add(round_of({send_to(1, 8)}));
  events.add(round_of({receive_from(0, 8)}));
  EXPECT_DOUBLE_EQ(events.run(), 9);
}

TEST(EventSimulation, RefusesMessagesThatDoNotMatch) {
  {
    EventSimulation events({.nodes = 2}, 1);
    events.add(round_of({send_to(1, 8)}));
    events.add(round_of({}));
    EXPECT_THROW(events.run(), Error);
  }
  EventSimulation events({.nodes = 2}, 1);
  events.add(round_of({send_to(1, 8)}));
  events.add(round_of({receive_from(0, 4)}));
  EXPECT_THROW(events.run(), Error);
}

}  // namespace
}  // namespace altorch
