// SPDX-License-Identifier: BSD-3-Clause
// Pinned memory of each rank, carried by the host, as a route that a group may take.
#include "base/shape.h"
#include "base/size_text.h"
#include "gpu/host_staged/host_relay.h"
#include "gpu/host_staged/host_staged.h"
#include "gpu/host_staged/messages.h"
#include "gpu/host_staged/pinned_bytes.h"
#include "gpu/route_opening.h"
#include "runtime/host_world.h"

namespace altorch {
namespace {

ExplainedProtocol explain(const Operation& whole, const World& world, std::string_view) {
  const HostRelayOptions options;
  const auto piece = static_cast<std::int64_t>(HostRelay::piece_bytes(pinned_bytes(), options.slots));
  const auto element = static_cast<std::int64_t>(size_of(whole.dtype));
  const bool vectors = is_vector_collective(whole.kind);
  const std::int64_t step =
      vectors ? HostRelay::step_of(whole, world.ranks, static_cast<std::size_t>(piece)) : piece / element;
  const std::int64_t pieces = std::max<std::int64_t>(1, (whole.count + step - 1) / step);
  Operation asked = whole;
  asked.count = std::min(asked.count, step);
  std::string text = std::to_string(pieces) + " piece(s) of up to " + size_text(asked.count * element) +
                     ": copied to pinned memory, carried by the host as ";
  if (vectors) {
    text += std::string(name_of(asked.kind)) + " (" +
            std::string(route_on_host(asked, world.ranks, world.one_node() ? 1 : 2).name) + ")";
  } else {
    text += "messages";
  }
  return {.steps = text + ", copied back; pieces overlap\n"};
}

OpenedRoute open(RouteOpening& opening) {
  // The group's own store looks after the peers, of which one may have no pinned memory.
  const HostRelayOptions options{.pinned_bytes = pinned_bytes(),
                                 .timeout = opening.timeout,
                                 .marks = opening.has_kernels,
                                 .store = &opening.store,
                                 .on_failure = opening.options.on_relay_failure};
  auto device = opening.options.gpus.open(opening.device, !opening.world.own_gpus());
  return {
      std::make_unique<HostRelay>(std::move(device), opening.options.make_carrier(opening.ranks), options),
      ""};
}

}  // namespace

extern const GpuRouteRow gpu_rows::host_relay = {
    .name = "host_relay",
    // A request for staging through the host accepts either route.
    .fallback_for = {"host_staged", "hierarchical"},
    .unsupported_on = [](const GpuSource& gpus, int device) { return gpus.unsupported_reason(device); },
    .unsupported_among = [](const World&) { return std::optional<std::string>(); },
    .unsupported_to = [](const Operation& operation,
                         const World&) { return host_staged_unsupported_reason(operation); },
    .capture_unsupported_reason = [](const Operation&, const World&, std::string_view)
        -> std::optional<std::string> { return "the host takes part in it"; },
    .explain = explain,
    .open = open,
};

}  // namespace altorch
