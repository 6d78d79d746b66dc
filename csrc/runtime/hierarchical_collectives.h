// SPDX-License-Identifier: BSD-3-Clause
// Collectives of a group that spans nodes: through memory on each, by messages between them
// (plan.h).
#pragma once

#include <memory>

#include "collectives/algorithm.h"
#include "collectives/executor.h"
#include "collectives/hierarchical/part_channel.h"
#include "collectives/hierarchical/plan.h"
#include "runtime/schedule_cache.h"
#include "runtime/scratch.h"
#include "transports/node.h"

namespace altorch {

// Thread rules: one thread at a time. Never waits.
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
  // part.
  static std::int64_t part_elements(const Call& call, const hierarchical::Layout& layout);
  // Seconds, with the stages on this rank's node (select/costs.h).
  double estimate(const Call& call, const CostModel& model) const;
  void start(const Call& call, std::uint64_t identity, std::string_view protocol, Request& request) override;
  std::uint64_t steps() const override;
  State test(Request& request, std::optional<Error>& error) override;
  bool cancel(Request& request) override;
  WaitTarget wait_target() const override;

 private:
  // False: the one before was the last.
  bool start_part();
  // From stage_ on the first that others take part in; what this rank does by itself is done on the
  // way.
  void start_stage();
  void start_messages(const hierarchical::Stage& stage);

  const Node& node_;
  const hierarchical::Layout layout_;
  const int tag_bits_;
  hierarchical::PartChannel between_;

  // The call under way.
  Call call_;
  std::uint64_t identity_ = 0;
  std::int64_t done_ = 0;  // elements
  std::vector<hierarchical::Stage> stages_;
  std::size_t stage_ = 0;
  Request on_node_;
  bool messages_fly_ = false;
  std::uint64_t stages_done_ = 0;  // in the life of the group

  // What transports may write to and read from while a call is under way.
  struct Memory {
    Scratch scratch, beside;
  };
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  ScheduleCache schedules_;
  Execution execution_;
};

}  // namespace altorch
