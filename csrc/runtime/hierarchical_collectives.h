// SPDX-License-Identifier: BSD-3-Clause
// Collectives of a group that spans nodes: through memory on each, by messages between them
// (plan.h).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/executor.h"
#include "collectives/hierarchical/part_channel.h"
#include "collectives/hierarchical/plan.h"
#include "runtime/schedule_cache.h"
#include "runtime/scratch.h"
#include "runtime/tag_layout.h"
#include "transports/node.h"

namespace altorch {

// Carries a call in parts, at most two at a time: one part uses the node's memory, while messages
// carry the other. The parts are successive; all ranks of a node begin their calls on the node in
// the same order. Thread rules: one thread at a time. Never waits.
class HierarchicalCollectives : public NativeCollectives {
 public:
  // `channel`: of the whole group. `node` and `channel` outlive it.
  HierarchicalCollectives(const Node& node, Channel& channel);

  static constexpr std::string_view kName = kHierarchicalCollectives;
  std::string_view name() const override { return kName; }
  bool offers(const Call& call) const override { return hierarchical::has_plan(call, layout_); }
  // On a node; messages between nodes carry the identity in their tags.
  bool compares_calls() const override { return true; }
  bool takes_staged() const override { return true; }
  // Seconds of the messages between nodes, by the model; memory is not in it.
  static double cost(const Call& call, const hierarchical::Layout& layout, const CostModel& model);
  // The elements of one part: of the vector, or of every block. Longer calls are carried part by
  // part, two at a time: one through memory, while messages carry the other.
  static std::int64_t part_elements(const Call& call, const hierarchical::Layout& layout);
  // Seconds, with the stages on this rank's node (select/costs.h).
  double estimate(const Call& call, const CostModel& model) const;
  void start(const Call& call, std::uint64_t identity, std::string_view protocol, Request& request) override;
  std::uint64_t steps() const override;
  State test(Request& request, std::optional<Error>& error) override;
  bool cancel(Request& request) override;
  WaitTarget wait_target() const override;

 private:
  // What transports may write to and read from while a part is under way.
  struct Memory {
    Scratch scratch, beside;
  };
  enum class Doing { kNothing, kOnNode, kMessages };
  // A part of the call under way.
  struct Running {
    explicit Running(Channel& channel) : between(channel) {}
    bool over() const { return stage == stages.size(); }

    std::int64_t number = -1;  // of the part
    std::vector<hierarchical::Stage> stages;
    std::size_t stage = 0;
    Doing doing = Doing::kNothing;
    int on_node = 0, begun_on_node = 0;  // stages on the node
    hierarchical::PartChannel between;
    std::unique_ptr<Memory> memory = std::make_unique<Memory>();
    ScheduleCache schedules;
    Execution execution;
  };

  Running& other(const Running& part) { return running_[&part == &running_[0] ? 1 : 0]; }
  // False: there is none to begin, or not yet.
  bool begin_part(Running& part);
  // Carries out the stages that this rank does by itself, and begins the next one if it may.
  void begin_stage(Running& part);
  void begin_messages(Running& part, const hierarchical::Stage& stage);
  bool has_turn_on_node(const Running& part);
  bool node_is_busy() const {
    return running_[0].doing == Doing::kOnNode || running_[1].doing == Doing::kOnNode;
  }

  const Node& node_;
  const hierarchical::Layout layout_;
  const TagLayout tags_;

  // The call under way.
  Call call_;
  std::uint64_t identity_ = 0;
  std::int64_t part_elements_ = 0, parts_ = 0, begun_ = 0;
  std::array<Running, 2> running_;
  Request on_node_;
  std::uint64_t stages_done_ = 0;  // in the life of the group
};

}  // namespace altorch
