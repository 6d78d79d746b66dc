// SPDX-License-Identifier: BSD-3-Clause
// The route for groups that span nodes. It runs the stages of a plan
// (collectives/hierarchical/plan.h) on one stream, each by another route: on the node by peer or
// host_staged; between nodes, among the ranks of one rail, by nccl or host_relay. All ranks enqueue
// the stages in the same order.
//
// A rank that aborts ends the kernels of its whole node, which leave poison in place of results.
// Poison must not be sent to another node, where it would be added as if it were data. So a kernel
// before each stage between nodes holds the stream once the node is aborted, until this rank itself
// has aborted its rail. That keeps poison off networks; an aborted kernel of NCCL may still send it
// to GPUs that NCCL reaches without one (ALTORCH_NODE on one machine, NVLink between machines).
//
// Thread rules: those of GpuRoute.
#pragma once

#include <memory>

#include "collectives/hierarchical/plan.h"
#include "device/device.h"
#include "gpu/gpu_route.h"
#include "gpu/poison_guard.h"
#include "select/world.h"

namespace altorch {

class HierarchicalRoute : public GpuRoute {
 public:
  struct Parts {
    // Among the ranks of this node; null: this rank is alone on it.
    std::shared_ptr<GpuRoute> on_node = nullptr;
    // Among the ranks of this rank's rail; null: this rank is beyond the rails.
    std::unique_ptr<GpuRoute> rail = nullptr;
    // Poisons the results of an aborted call of the rail; null: on_error asks for none.
    std::unique_ptr<PoisonGuard> guard = nullptr;
  };

  // Throws Error(kUnsupported) if the GPU or the host has no memory left.
  HierarchicalRoute(std::unique_ptr<Device> device, const hierarchical::Layout& layout);
  // To be called once, before the first call. `can_be_captured`: the same on every rank.
  void take(Parts parts, bool can_be_captured);

  static constexpr char kName[] = "hierarchical";
  const char* name() const override { return kName; }
  void enqueue(std::span<const Operation> operations, void* stream) override;
  bool marks_results() const override { return true; }
  const char* capture_unsupported_reason() const override;
  Held holds() override;
  std::optional<Error> failure() override;
  void abort(const std::string& why) override;
  void leave_to_graphs() override;

  // Why no plan carries it in this group, as a clause, or nothing. The same on every rank.
  static std::optional<std::string> unsupported_reason(const Operation& operation, const World& world);

 private:
  void enqueue(const Operation& operation, Stream stream);
  void enqueue(const hierarchical::Stage& stage, const Operation& whole, Stream stream);
  void enqueue_copies(const std::vector<hierarchical::Move>& moves, std::size_t element_bytes, Stream stream);
  void enqueue_on_node(Operation part, const Operation& whole, Stream stream);
  void enqueue_on_rail(const hierarchical::Stage& stage, const Operation& part, Stream stream);
  // Sends the vector of a root that is on no rail to the first rank of its node, which leads it.
  void send_to_rail(const Operation& broadcast, Stream stream);
  bool is_beyond_rails(const Operation& operation) const;

  const std::unique_ptr<Device> device_;
  const hierarchical::Layout layout_;
  const DeviceMemory scratch_;
  const PinnedMemory released_;  // a Flag: this rank has aborted its rail
  Parts parts_;
  bool can_be_captured_ = false;
};

}  // namespace altorch
