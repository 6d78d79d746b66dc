// SPDX-License-Identifier: BSD-3-Clause
// The route for groups that span nodes: the stages of a plan (collectives/hierarchical/plan.h) on
// one stream, each by another route. On a node the GPUs exchange by peer or host_staged. Then each
// rank on a rail has a slice of the vector, or the blocks of some ranks, and exchanges it with its
// rail by nccl or host_relay.
#pragma once

#include <memory>

#include "collectives/hierarchical/plan.h"
#include "device/device.h"
#include "gpu/gpu_route.h"
#include "gpu/poison_guard.h"

namespace altorch {

class HierarchicalRoute : public GpuRoute {
 public:
  // `on_node`: of the ranks of this node; null: there is one. `guard`: marks what aborted calls
  // along the rail leave behind; null: nothing does. Throws Error(kUnsupported) where the device
  // has no memory left.
  HierarchicalRoute(std::unique_ptr<Device> device, const hierarchical::Layout& layout,
                    std::unique_ptr<GpuRoute> on_node, std::unique_ptr<PoisonGuard> guard);
  // Before the first call. `rail`: of this rank's rail; null: it is on none.
  void take_rail(std::unique_ptr<GpuRoute> rail) { rail_ = std::move(rail); }

  static constexpr char kName[] = "hierarchical";
  const char* name() const override { return kName; }
  void enqueue(std::span<const Operation> operations, void* stream) override;
  bool marks_results() const override { return true; }
  Held holds() override;
  std::optional<Error> failure() override;
  void abort(const std::string& why) override;

  // Why no plan carries it, as a clause, or nothing. The same on every rank.
  static std::optional<std::string> unsupported_reason(const Operation& operation);

 private:
  void enqueue(Operation operation, Stream stream);
  void enqueue(const hierarchical::Stage& stage, const Operation& whole, Stream stream);
  // What only other ranks of the node can give to the ranks on rails.
  void bring_to_rail(Operation& broadcast, Stream stream);
  void divide(const Operation& sum, int rank, int ranks, Stream stream);

  const std::unique_ptr<Device> device_;
  const hierarchical::Layout layout_;
  const std::unique_ptr<PoisonGuard> guard_;
  std::unique_ptr<GpuRoute> on_node_, rail_;
  const DeviceMemory scratch_;
};

}  // namespace altorch
