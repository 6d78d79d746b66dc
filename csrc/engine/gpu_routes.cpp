#include "engine/gpu_routes.h"

#include <sstream>

#include "common/env.h"
#include "common/meeting.h"
#include "device/cuda_device.h"
#include "engine/host_staged/relay.h"
#include "engine/nccl_route.h"

namespace altorch {
namespace {

// What a rank tells the others, one line each.
struct Card {
  std::string gpu;          // its identity, the same in every process
  std::string nccl, relay;  // why not; empty: it can

  static Card of(int device) {
    Card card;
    card.gpu = CudaDevice::identity(device);
    try {
      nccl::library();
    } catch (const Error& error) {
      card.nccl = error.what();
    }
    card.relay = CudaDevice::obstacle(device).value_or("");
    return card;
  }
  std::string text() const { return gpu + "\n" + nccl + "\n" + relay + "\n"; }
  static Card from(const std::string& text) {
    Card card;
    std::istringstream lines(text);
    std::getline(lines, card.gpu);
    std::getline(lines, card.nccl);
    std::getline(lines, card.relay);
    return card;
  }
};

std::string on_rank(std::size_t rank, const std::string& reason) {
  return "on rank " + std::to_string(rank) + " " + reason;
}

}  // namespace

GpuRoutes::GpuRoutes(Communicator& communicator, int device, std::chrono::milliseconds timeout,
                     CarrierFactory make_carrier)
    : communicator_(communicator),
      device_(device),
      timeout_(timeout),
      make_carrier_(std::move(make_carrier)) {
  const auto words = meet(communicator.store(), "cuda", communicator.rank(), communicator.size(), timeout,
                          "with a CUDA tensor", Card::of(device).text());
  std::vector<Card> cards;
  for (const std::string& word : words) cards.push_back(Card::from(word));
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    if (!missing_[kNccl] && !card.nccl.empty()) missing_[kNccl] = on_rank(rank, card.nccl);
    if (!missing_[kHostStaged] && !card.relay.empty()) missing_[kHostStaged] = on_rank(rank, card.relay);
    for (std::size_t other = 0; other < rank && !missing_[kNccl]; ++other) {
      if (cards[other].gpu != card.gpu) continue;
      missing_[kNccl] = "ranks " + std::to_string(other) + " and " + std::to_string(rank) +
                        " share one GPU, which NCCL refuses";
    }
  }
}

std::optional<std::string> GpuRoutes::obstacle(Kind kind, std::span<const Operation> operations,
                                               bool capturing) const {
  if (missing_[kind]) return missing_[kind];
  if (kind == kHostStaged && capturing)
    return "its operations cannot be captured into a CUDA graph: the host takes part in each";
  for (const Operation& operation : operations) {
    const auto found = kind == kNccl ? NcclRoute::obstacle_to(operation) : Relay::obstacle_to(operation);
    if (found) return found;
  }
  return std::nullopt;
}

GpuRoute& GpuRoutes::choose(std::span<const Operation> operations, bool capturing) {
  const std::string_view asked = rules_.gpu_route(operations.front(), communicator_.size());
  std::string reasons;
  for (const Kind kind : {kNccl, kHostStaged}) {
    if (!asked.empty() && asked != kNames[kind]) continue;
    const auto reason = obstacle(kind, operations, capturing);
    if (!reason) return made(kind);
    reasons += (reasons.empty() ? "" : "; ") + std::string(kNames[kind]) + ": " + *reason;
  }
  throw Error(ErrorKind::kUnsupported, "no route can carry it between GPUs (" + reasons + "); " +
                                           (asked.empty() ? "use .cpu()" : "ALTORCH_ROUTE allows no other"));
}

GpuRoute& GpuRoutes::made(Kind kind) {
  if (routes_[kind]) return *routes_[kind];  // written by this thread's predecessors only
  std::unique_ptr<GpuRoute> route;
  if (kind == kNccl) {
    route = std::make_unique<NcclRoute>(communicator_.store(), device_, communicator_.rank(),
                                        communicator_.size(), timeout_);
  } else {
    const auto bytes = static_cast<std::size_t>(numeric_setting("ALTORCH_PINNED_BYTES"));
    route = std::make_unique<Relay>(std::make_unique<CudaDevice>(device_), make_carrier_(),
                                    RelayOptions{.pinned_bytes = bytes, .timeout = timeout_});
  }
  const std::lock_guard lock(mutex_);
  routes_[kind] = std::move(route);
  return *routes_[kind];
}

std::vector<GpuRoute*> GpuRoutes::all_made() {
  const std::lock_guard lock(mutex_);
  std::vector<GpuRoute*> found;
  for (const auto& route : routes_) {
    if (route) found.push_back(route.get());
  }
  return found;
}

std::optional<Error> GpuRoutes::failure() {
  for (GpuRoute* route : all_made()) {
    if (auto error = route->failure()) return error;
  }
  return std::nullopt;
}

void GpuRoutes::abort(const std::string& why) {
  for (GpuRoute* route : all_made()) route->abort(why);
}

}  // namespace altorch
