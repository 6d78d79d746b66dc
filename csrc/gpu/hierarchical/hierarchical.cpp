// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/hierarchical/hierarchical.h"

#include <algorithm>

#include "base/shape.h"

namespace altorch {

using hierarchical::Move;
using hierarchical::Stage;

namespace {

// Longer blocks are carried in parts. A plan reserves the blocks of a part, and those that a rail
// serves, on this node and on all.
constexpr std::int64_t kPart = 8 << 20, kScratch = 3 * kPart;

}  // namespace

HierarchicalRoute::HierarchicalRoute(std::unique_ptr<Device> device, const hierarchical::Layout& layout,
                                     std::unique_ptr<GpuRoute> on_node, std::unique_ptr<PoisonGuard> guard)
    : device_(std::move(device)),
      layout_(layout),
      guard_(std::move(guard)),
      on_node_(std::move(on_node)),
      scratch_(device_->allocate(kScratch)) {}

std::optional<std::string> HierarchicalRoute::unsupported_reason(const Operation& operation) {
  switch (operation.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
    case OpKind::kBroadcast:
      break;
    default:
      return std::string("it has no plan for ") + name_of(operation.kind);
  }
  if (!operation.reduces()) return std::nullopt;
  if (is_exact(operation.op) || is_float8(operation.dtype))
    return "the sum is rounded once, and a plan would round that of each node";
  if (operation.op == ReduceOp::kPremulSum) return "it multiplies nothing";
  if (operation.op == ReduceOp::kAvg && !is_floating(operation.dtype))
    return "it divides floating-point numbers only";
  return std::nullopt;
}

void HierarchicalRoute::enqueue(std::span<const Operation> operations, void* stream) {
  if (auto error = failure()) throw *error;
  for (const Operation& operation : operations) enqueue(operation, stream);
}

void HierarchicalRoute::enqueue(Operation operation, Stream stream) {
  if (operation.kind == OpKind::kAllReduce && operation.input && operation.input != operation.output) {
    const auto result = result_of(operation, layout_.rank(), layout_.size());
    device_->copy_on_device(result.data(), operation.input, result.size(), stream);
  }
  if (operation.op == ReduceOp::kAvg) device_->prepare(operation.dtype, ReduceOp::kPremulSum, Device::kParts);
  if (operation.kind == OpKind::kBroadcast) bring_to_rail(operation, stream);
  const std::int64_t length = longest_block(operation);
  const std::int64_t step = hierarchical::longest_part(operation, layout_, kPart);
  const auto reserve = [&](std::int64_t elements) -> void* {
    if (elements * static_cast<std::int64_t>(size_of(operation.dtype)) > kScratch)
      throw Error(ErrorKind::kInternal, "a plan asks for more memory than there is");
    return scratch_.get();
  };
  for (std::int64_t begin = 0; begin < length; begin += step) {
    const hierarchical::Part part{begin, std::min(step, length - begin)};
    for (const Stage& stage : hierarchical::plan_of(operation, layout_, part, reserve))
      enqueue(stage, operation, stream);
  }
}

void HierarchicalRoute::bring_to_rail(Operation& broadcast, Stream stream) {
  if (layout_.place_of(broadcast.root) < layout_.rails()) return;
  const int node = layout_.node_of(broadcast.root);
  if (node == layout_.own_node()) {
    Operation among = broadcast;
    among.root = layout_.place_of(broadcast.root);
    on_node_->enqueue({&among, 1}, stream);
  }
  broadcast.root = layout_.ranks_of(node).front();
}

void HierarchicalRoute::enqueue(const Stage& stage, const Operation& whole, Stream stream) {
  for (const Move& move : stage.moves)
    device_->copy_on_device(move.to, move.from, static_cast<std::size_t>(move.count) * size_of(whole.dtype),
                            stream);
  if (stage.is_own()) return;
  Operation part = whole;
  static_cast<Call&>(part) = stage.call;
  if (part.kind == OpKind::kAllReduce) part.input = part.output;
  if (stage.is_on_node()) return on_node_->enqueue({&part, 1}, stream);
  if (!rail_ || stage.members != layout_.rail(layout_.own_place()))
    throw Error(ErrorKind::kInternal, "a plan has messages beside the rails");
  rail_->enqueue({&part, 1}, stream);
  const int ranks = static_cast<int>(stage.members.size());
  if (whole.op == ReduceOp::kAvg && part.reduces()) divide(part, stage.own, ranks, stream);
  // What comes after it on this node must not take leftover data for a sum.
  if (guard_) guard_->guard(part, stage.own, ranks, stream);
}

// The rail is the last to add.
void HierarchicalRoute::divide(const Operation& sum, int rank, int ranks, Stream stream) {
  DeviceReduction job;
  job.parts[0] = job.output = sum.output;
  job.number = 1;
  job.scaled = 0;
  job.factor = 1.0 / layout_.size();
  job.count = static_cast<kernels::i64>(result_count(sum, rank, ranks));
  if (job.count > 0) device_->reduce(job, sum.dtype, ReduceOp::kPremulSum, stream);
}

GpuRoute::Held HierarchicalRoute::holds() {
  Held all{.on_gpu = kScratch};
  for (const auto* part : {&on_node_, &rail_}) {
    if (!*part) continue;
    const Held more = (*part)->holds();
    all.on_gpu += more.on_gpu;
    all.persistent += more.persistent;
    all.on_host += more.on_host;
  }
  return all;
}

std::optional<Error> HierarchicalRoute::failure() {
  for (const auto* part : {&on_node_, &rail_}) {
    if (!*part) continue;
    if (auto error = (*part)->failure()) return error;
  }
  return std::nullopt;
}

// NCCL last: it frees memory, for which the device has to come to the end of what the other holds
// up.
void HierarchicalRoute::abort(const std::string& why) {
  if (guard_) guard_->raise();
  if (on_node_) on_node_->abort(why);
  if (rail_) rail_->abort(why);
}

}  // namespace altorch
