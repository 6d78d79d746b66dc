// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/simulate.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/shape.h"
#include "base/size_text.h"
#include "collectives/hierarchical/plan.h"
#include "runtime/hierarchical_collectives.h"
#include "runtime/host_world.h"
#include "select/costs.h"
#include "select/decide.h"
#include "simulate/event_simulation.h"
#include "simulate/lower_bound.h"
#include "simulate/schedules.h"

namespace altorch {
namespace {

using hierarchical::Stage;

constexpr char kMeasured[] = "measured";                       // as the source of a time
constexpr std::int64_t kMostElements = std::int64_t{1} << 56;  // of all ranks: their bytes can be counted

Operation with(const Operation& call, const Call& other) {
  Operation made = call;
  static_cast<Call&>(made) = other;
  return made;
}

std::string call_text(const Call& call) {
  if (call.kind == OpKind::kBarrier) return std::string(name_of(call.kind));
  const auto bytes = call.count * static_cast<std::int64_t>(size_of(call.dtype));
  return std::string(name_of(call.kind)) + " of " + size_text(bytes);
}

// Bytes that the ranks of the first node send to other nodes.
double bytes_leaving(const Schedules& schedules, const Network& network) {
  double elements = 0;
  for (int rank = 0; rank < network.per_node; ++rank) {
    for (const Step& step : schedules.of(rank).steps)
      if (step.kind == StepKind::kSend && network.node_of(step.peer) != 0)
        elements += static_cast<double>(step.a.count);
  }
  return elements * schedules.element_bytes();
}

CostModel model_of(const Network& network) {
  if (network.nodes == 1) return {network.on_node_alpha, network.on_node_beta, network.gamma};
  return {network.alpha, std::max(network.beta, network.rank_beta), network.gamma};
}

// By the algorithm's formula, of messages between nodes, but at least as long as the port of a node
// needs for what its ranks send.
double seconds_by_formula(const Schedules& schedules, const Network& network) {
  const CostModel model = model_of(network);
  const double seconds = schedules.cost(model);
  if (network.per_node == 1 || network.nodes == 1) return seconds;
  return std::max(seconds,
                  schedules.cost({model.alpha, 0, 0}) + bytes_leaving(schedules, network) * network.beta);
}

SimulatedStage of_messages(const Schedules& schedules, const Network& network,
                           const std::function<void(double)>& progress) {
  SimulatedStage stage;
  const std::int64_t ranks = network.ranks();
  stage.messages = schedules.segments() * ranks;
  std::size_t posted = 0, rounds = 0;  // of one rank
  if (stage.messages <= kMostSimulatedMessages) {
    const Schedule first = schedules.of(0);
    const auto sends = std::ranges::count(first.steps, StepKind::kSend, &Step::kind);
    const auto receives = std::ranges::count(first.steps, StepKind::kReceive, &Step::kind);
    stage.messages = std::max(sends, receives) * (schedules.is_star() ? 1 : ranks);
    posted = static_cast<std::size_t>(schedules.is_star() ? 1 : sends + receives);
    rounds = schedules.is_star() ? 1 : first.rounds.size();
  }
  if (stage.messages > kMostSimulatedMessages || ranks > schedules.most_ranks()) {
    stage.seconds = seconds_by_formula(schedules, network);
    stage.source = "formula";
  } else {
    EventSimulation events(network, schedules.element_bytes());
    events.reserve(posted * static_cast<std::size_t>(ranks), rounds * static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      events.add(schedules.of(rank));
      if (rank % 16 == 15 && progress) progress(0);
    }
    stage.seconds = events.run(progress);
    stage.messages = events.messages();
    stage.source = "events";
  }
  const CostModel model = model_of(network);
  stage.latency = schedules.cost({model.alpha, 0, 0});
  stage.transfer = schedules.cost({0, model.beta, 0});
  stage.reduction = schedules.cost({0, 0, model.gamma});
  return stage;
}

// What all ranks of a node do in the stages of one part, by number.
struct NodeStage {
  Operation call;       // the largest of its ranks'
  int members = 0;      // of messages; 0: on the node
  std::set<int> rails;  // first members of groups whose messages share the node's port
};

std::map<int, NodeStage> stages_of_first_node(const Operation& call, const Network& network,
                                              hierarchical::Part part) {
  std::map<int, NodeStage> found;
  for (int rank = 0; rank < network.per_node; ++rank) {
    const auto layout = layout_on_nodes(network.ranks(), network.nodes, rank);
    for (const Stage& stage : hierarchical::plan_of(call, layout, part, [](auto) { return nullptr; })) {
      if (stage.is_own()) continue;
      NodeStage& kept = found[stage.number];
      if (kept.members == 0 || stage.call.count > kept.call.count) {
        kept.call = with(call, stage.call);
        kept.call.input_counts = kept.call.output_counts = {};  // of the stage, which ends here
      }
      kept.members = static_cast<int>(stage.members.size());
      if (!stage.is_on_node()) kept.rails.insert(stage.members.front());
    }
  }
  return found;
}

// Adds the stages of `times` equal parts.
void add_stages(Simulated& result, const Operation& call, const Network& network, hierarchical::Part part,
                double times, const std::function<void(double)>& progress) {
  std::vector<SimulatedStage> stages;
  double in_memory = 0, messages = 0;  // of one part
  for (const auto& [number, each] : stages_of_first_node(call, network, part)) {
    SimulatedStage stage;
    const bool on_node = each.members == 0;
    if (on_node) {
      const double measured = measured_seconds(On::kHost, each.call, network.per_node);
      // The measured time includes a call's dispatch, which a stage does not have. A quarter stays,
      // so that a long `call` does not make a stage free.
      stage.seconds = std::max(measured - network.call, measured / 4);
      stage.source = kMeasured;
      stage.text = call_text(each.call) + " among the " + std::to_string(network.per_node) +
                   " ranks of each node, through memory";
    } else {
      Network between = network;
      between.nodes = each.members;
      between.per_node = 1;
      between.beta *= static_cast<double>(each.rails.size());
      between.rank_beta = std::max(between.rank_beta, between.beta);
      const Route route = decide_among_algorithms(each.call, each.members);
      stage = of_messages(Schedules(*route.algorithm, each.call, each.members), between, progress);
      stage.messages *= static_cast<std::int64_t>(each.rails.size());
      stage.text =
          call_text(each.call) + " between " + std::to_string(each.members) + " nodes" +
          (each.rails.size() > 1 ? " along each of " + std::to_string(each.rails.size()) + " rails" : "") +
          ", by " + std::string(route.name);
    }
    if (times > 1) stage.text += ", " + std::to_string(static_cast<std::int64_t>(times)) + " times";
    (on_node ? in_memory : messages) += stage.seconds;
    stages.push_back(std::move(stage));
  }
  // Memory of one part overlaps messages of another. So the shorter of the two counts once.
  const bool memory_is_hidden = in_memory < messages;
  for (SimulatedStage& stage : stages) {
    const bool hidden = memory_is_hidden == (stage.source == kMeasured);
    if (times > 1 && hidden) stage.text += ", overlapped in all parts but one";
    for (double* seconds : {&stage.seconds, &stage.latency, &stage.transfer, &stage.reduction})
      *seconds *= hidden ? 1 : times;
    result.seconds += stage.seconds;
    result.stages.push_back(std::move(stage));
  }
}

// Part by part, as HierarchicalCollectives carries it.
void add_plan(Simulated& result, const Operation& call, const Network& network,
              const std::function<void(double)>& progress) {
  const std::int64_t length = longest_block(call);
  const auto layout = layout_on_nodes(network.ranks(), network.nodes);
  const std::int64_t part = HierarchicalCollectives::part_elements(call, layout);
  const std::int64_t whole = length / part, rest = length % part;
  if (whole > 0) add_stages(result, call, network, {0, part}, static_cast<double>(whole), progress);
  if (rest > 0 || length == 0) add_stages(result, call, network, {0, rest}, 1, progress);
}

void add_call(Simulated& result, const Network& network) {
  SimulatedStage stage;
  stage.text = "the call: Python and torch's dispatch";
  stage.seconds = network.call;
  stage.source = "given";
  result.seconds += stage.seconds;
  result.stages.push_back(std::move(stage));
}

}  // namespace

Simulated simulate(const Operation& call, const Network& network,
                   const std::function<void(double)>& progress) {
  network.check();
  if (!call.is_collective() || call.uneven() || call.on_gpu()) {
    throw Error(ErrorKind::kInvalidArgument, std::string(name_of(call.kind)) +
                                                 ": only collectives on host memory with blocks of one size "
                                                 "can be simulated");
  }
  if (call.count > kMostElements / network.ranks()) {
    throw Error(ErrorKind::kInvalidArgument, std::to_string(call.count) + " elements for each of " +
                                                 std::to_string(network.ranks()) +
                                                 " ranks are more than can be counted");
  }
  Simulated result;
  const auto bytes = call.count * static_cast<std::int64_t>(size_of(call.dtype));
  result.lower_bound = lower_bound_seconds(call.kind, bytes, network);
  const int ranks = network.ranks();
  if (ranks == 1) {
    result.route = "none";
    return result;
  }
  const Route route = route_on_host(call, ranks, network.nodes);
  result.route = route.name;
  if (route.algorithm) {
    const Schedules schedules(*route.algorithm, call, ranks);
    result.stages.push_back(of_messages(schedules, network, progress));
    result.seconds = result.stages.back().seconds;
    result.stages.back().text = call_text(call) + " among " + std::to_string(ranks) + " ranks, by messages";
    add_call(result, network);
  } else if (route.name == HierarchicalCollectives::kName) {
    add_plan(result, call, network, progress);
    add_call(result, network);
  } else {
    SimulatedStage stage;
    stage.seconds = result.seconds = measured_seconds(On::kHost, call, ranks);
    stage.source = kMeasured;
    stage.text = call_text(call) + " among " + std::to_string(ranks) + " ranks, through memory";
    result.stages.push_back(std::move(stage));
    result.lower_bound = 0;  // of the memory of a node there is none
  }
  return result;
}

}  // namespace altorch
