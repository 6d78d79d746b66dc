// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/nccl_route.h"

#include "gpu/route_opening.h"
#include "runtime/watchdog_store.h"

namespace altorch {

NcclRoute::NcclRoute(std::unique_ptr<nccl::NcclComm> communicator,
                     std::function<void(nccl::Comm, bool exists)> publish)
    : communicator_(std::move(communicator)), publish_(std::move(publish)) {
  if (publish_) publish_(communicator_->handle(), true);
}

NcclRoute::~NcclRoute() { unpublish(); }

void NcclRoute::enqueue(std::span<const Operation> operations, void* stream) {
  const Call& first = operations.front();
  if (operations.size() == 1) return communicator_->enqueue({&first, 1}, stream);
  const std::vector<Call> calls(operations.begin(), operations.end());
  communicator_->enqueue(calls, stream);
}

std::optional<Error> NcclRoute::failure() {
  if (auto text = communicator_->async_error()) return Error(ErrorKind::kTransport, *text);
  return std::nullopt;
}

void NcclRoute::abort(const std::string&) {
  unpublish();
  communicator_->abort();
}

NcclRoute::Held NcclRoute::holds() {
  const auto memory = communicator_->memory();
  if (!memory) return {};
  return {.on_gpu = memory->suspendable + memory->persistent, .persistent = memory->persistent};
}

// torch must not use a communicator that has ended.
void NcclRoute::unpublish() {
  const nccl::Comm comm = communicator_->handle();
  if (comm && published_.exchange(false) && publish_) publish_(comm, false);
}

namespace {

std::optional<std::string> unsupported_on(const GpuSource&, int) {
  try {
    nccl::library();
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

std::optional<std::string> unsupported_among(const World& world) {
  if (!world.same_gpu) return std::nullopt;
  return "ranks " + std::to_string(world.same_gpu->first) + " and " + std::to_string(world.same_gpu->second) +
         " share one GPU, which NCCL refuses";
}

ExplainedProtocol explain(const Operation& asked, const World&, std::string_view) {
  const bool one = !asked.is_message() && nccl::NcclComm::is_one_call(asked);
  return {.steps = one ? "one call of NCCL on the stream\n"
                       : "ncclSend and ncclRecv on the stream, as one group where they are several\n"};
}

OpenedRoute open(RouteOpening& opening) {
  auto made = std::move(opening.options.nccl_communicator);
  if (!made) {
    // NCCL has a deadline of its own.
    WatchdogStore store(opening.communicator, opening.first, std::chrono::hours(24));
    made = std::make_unique<nccl::NcclComm>(opening.store, "nccl", opening.device, opening.rank(),
                                            opening.size(), opening.timeout, opening.options.nccl,
                                            [&store] { store.check_peers(); });
  }
  return {std::make_unique<NcclRoute>(std::move(made), opening.options.publish_nccl), ""};
}

}  // namespace

extern const GpuRouteRow gpu_rows::nccl = {
    .name = "nccl",
    .fallback_for = {"hierarchical"},
    .opens_at_once = true,
    .guarded = true,
    .unsupported_on = unsupported_on,
    .unsupported_among = unsupported_among,
    .unsupported_to = [](const Operation& operation,
                         const World&) { return nccl::NcclComm::unsupported_reason(operation); },
    .explain = explain,
    .open = open,
};

}  // namespace altorch
