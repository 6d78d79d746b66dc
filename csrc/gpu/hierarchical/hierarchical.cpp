// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/hierarchical/hierarchical.h"

#include <algorithm>

#include "base/flag.h"
#include "base/shape.h"

namespace altorch {

using hierarchical::Move;
using hierarchical::Stage;

namespace {

// Longer blocks are carried in parts.
constexpr std::int64_t kPart = 8 << 20, kScratch = std::max(3 * kPart, hierarchical::kAtOnce);

// Whether each rank multiplies what it contributes. It does so on its node.
bool is_scaled(const Call& call) {
  return call.reduces() && (call.op == ReduceOp::kAvg || call.op == ReduceOp::kPremulSum);
}

// Whether a plan for `kind` reserves memory beside the buffers.
bool reserves(OpKind kind) {
  return kind == OpKind::kAllGather || kind == OpKind::kReduceScatter || kind == OpKind::kAllToAll;
}

}  // namespace

HierarchicalRoute::HierarchicalRoute(std::unique_ptr<Device> device, const hierarchical::Layout& layout)
    : device_(std::move(device)),
      layout_(layout),
      scratch_(device_->allocate(kScratch)),
      released_(device_->pin(sizeof(Flag))) {
  device_->prepare_poison();
  device_->prepare_copies();
}

void HierarchicalRoute::take(Parts parts, bool can_be_captured) {
  parts_ = std::move(parts);
  can_be_captured_ = can_be_captured;
}

std::optional<std::string> HierarchicalRoute::unsupported_reason(const Operation& operation,
                                                                 const World& world) {
  switch (operation.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
    case OpKind::kBroadcast:
      break;
    case OpKind::kAllToAll:
      if (operation.uneven()) return "of blocks with splits a rank knows only its own";
      for (const World& node : world.nodes)
        if (node.ranks != world.nodes.front().ranks) return "some nodes have more ranks than others";
      break;
    default:
      return std::string("it has no plan for ") + name_of(operation.kind);
  }
  if (!operation.reduces()) return std::nullopt;
  if (is_exact(operation.op) || is_float8(operation.dtype))
    return "it rounds the result of each node, and such a reduction is rounded once";
  if (!is_scaled(operation)) return std::nullopt;
  if (!is_floating(operation.dtype)) return "it scales floating-point numbers only";
  for (const World& node : world.nodes)
    if (node.ranks == 1) return "it scales on the nodes, and a rank is alone on one";
  return std::nullopt;
}

const char* HierarchicalRoute::capture_unsupported_reason() const {
  return can_be_captured_ ? nullptr : "on a node it goes by host_staged, which graphs cannot hold";
}

void HierarchicalRoute::enqueue(std::span<const Operation> operations, void* stream) {
  if (auto error = failure()) throw *error;
  for (const Operation& operation : operations) enqueue(operation, stream);
}

void HierarchicalRoute::enqueue(const Operation& operation, Stream stream) {
  if (operation.kind == OpKind::kAllReduce && operation.input && operation.input != operation.output) {
    const auto result = result_of(operation, layout_.rank(), layout_.size());
    device_->copy_on_device(result.data(), operation.input, result.size(), stream);
  }
  Operation planned = operation;
  if (is_beyond_rails(operation)) {
    if (!hierarchical::vector_takes_rails(operation.count, operation.dtype, layout_))
      send_to_rail(operation, stream);
    planned.root = layout_.ranks_of(layout_.node_of(operation.root)).front();
  }
  const std::int64_t length = longest_block(operation);
  const std::int64_t step =
      reserves(operation.kind) ? hierarchical::longest_part(operation, layout_, kPart) : length;
  const auto reserve = [&](std::int64_t elements) -> void* {
    if (elements * static_cast<std::int64_t>(size_of(operation.dtype)) > kScratch)
      throw Error(ErrorKind::kInternal, "a plan asks for more memory than there is");
    return scratch_.get();
  };
  for (std::int64_t begin = 0; begin < length; begin += step) {
    const hierarchical::Part part{begin, std::min(step, length - begin)};
    for (const Stage& stage : hierarchical::plan_of(planned, layout_, part, reserve))
      enqueue(stage, operation, stream);
  }
}

bool HierarchicalRoute::is_beyond_rails(const Operation& operation) const {
  return operation.kind == OpKind::kBroadcast && layout_.place_of(operation.root) >= layout_.rails();
}

void HierarchicalRoute::send_to_rail(const Operation& broadcast, Stream stream) {
  const bool sends = layout_.rank() == broadcast.root;
  const bool takes = layout_.rank() == layout_.ranks_of(layout_.node_of(broadcast.root)).front();
  if (!sends && !takes) return;
  Operation message = broadcast;
  message.kind = sends ? OpKind::kSend : OpKind::kReceive;
  message.root = sends ? 0 : layout_.place_of(broadcast.root);
  if (sends) message.input = broadcast.output;
  parts_.on_node->enqueue({&message, 1}, stream);
}

void HierarchicalRoute::enqueue(const Stage& stage, const Operation& whole, Stream stream) {
  if (stage.is_own()) return enqueue_copies(stage.moves, size_of(whole.dtype), stream);
  Operation part = whole;
  static_cast<Call&>(part) = stage.call;
  if (part.kind == OpKind::kAllReduce) part.input = part.output;
  if (is_scaled(whole)) part.op = ReduceOp::kSum;
  stage.is_on_node() ? enqueue_on_node(part, whole, stream) : enqueue_on_rail(stage, part, stream);
}

void HierarchicalRoute::enqueue_copies(const std::vector<Move>& moves, std::size_t element_bytes,
                                       Stream stream) {
  BlockCopies job;
  for (const Move& move : moves) {
    if (move.count == 0) continue;
    job.copies[job.number++] = {move.from, move.to, move.count * static_cast<std::int64_t>(element_bytes)};
    if (job.number < BlockCopies::kMost) continue;
    device_->copy_blocks(job, stream);
    job.number = 0;
  }
  device_->copy_blocks(job, stream);
}

void HierarchicalRoute::enqueue_on_node(Operation part, const Operation& whole, Stream stream) {
  if (is_scaled(whole) && part.reduces()) {
    part.op = ReduceOp::kPremulSum;
    part.factor = whole.op == ReduceOp::kAvg ? 1.0 / layout_.size() : whole.factor;
  }
  // The root itself has the data, and nothing may be written there.
  if (is_beyond_rails(whole) && layout_.node_of(whole.root) == layout_.own_node())
    part.root = layout_.place_of(whole.root);
  parts_.on_node->enqueue({&part, 1}, stream);
}

void HierarchicalRoute::enqueue_on_rail(const Stage& stage, const Operation& part, Stream stream) {
  if (!parts_.rail || stage.members != layout_.rail(layout_.own_place()))
    throw Error(ErrorKind::kInternal, "a plan has messages beside the rails");
  if (parts_.on_node) {
    device_->poison({.aborted = parts_.on_node->abort_flag(),
                     .released = &reinterpret_cast<const Flag*>(released_.get())->count},
                    stream);
  }
  parts_.rail->enqueue({&part, 1}, stream);
  // The stages that follow on this node must not pass on what an aborted call has left.
  if (parts_.guard && !parts_.rail->marks_results())
    parts_.guard->guard(part, stage.own, static_cast<int>(stage.members.size()), stream);
}

GpuRoute::Held HierarchicalRoute::holds() {
  Held all{.on_gpu = kScratch};
  for (GpuRoute* part : {parts_.on_node.get(), parts_.rail.get()}) {
    if (!part) continue;
    const Held more = part->holds();
    all.on_gpu += more.on_gpu;
    all.persistent += more.persistent;
    all.on_host += more.on_host;
  }
  return all;
}

std::optional<Error> HierarchicalRoute::failure() {
  for (GpuRoute* part : {parts_.on_node.get(), parts_.rail.get()}) {
    if (!part) continue;
    if (auto error = part->failure()) return error;
  }
  return std::nullopt;
}

// The node first: its other ranks must hold their streams before this one passes on what the guard
// marks. `released` last: a held stream runs on into the rail's kernel.
void HierarchicalRoute::abort(const std::string& why) {
  if (parts_.on_node) parts_.on_node->abort(why);
  if (parts_.guard) parts_.guard->raise();
  if (parts_.rail) parts_.rail->abort(why);
  leave_to_graphs();
}

// Nothing aborts a graph that is replayed after the end of the group, so nothing may hold it up.
void HierarchicalRoute::leave_to_graphs() { reinterpret_cast<Flag*>(released_.get())->raise(1); }

}  // namespace altorch
