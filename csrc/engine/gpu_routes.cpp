#include "engine/gpu_routes.h"

#include <algorithm>

#include "common/env.h"
#include "common/log.h"
#include "common/meeting.h"
#include "device/cuda_device.h"
#include "device/nvrtc.h"
#include "engine/attended_store.h"
#include "engine/host_staged/relay.h"
#include "engine/host_staged/shared.h"
#include "engine/nccl_route.h"
#include "transports/shm/segment.h"

namespace altorch {
namespace {

GpuCard card_of(int device) {
  GpuCard card;
  card.gpu = CudaDevice::identity(device);
  card.home = shared_memory_home();
  try {
    nccl::library();
  } catch (const Error& error) {
    card.obstacles[kNccl] = error.what();
  }
  card.obstacles[kHostRelay] = CudaDevice::obstacle(device).value_or("");
  card.obstacles[kHostStaged] =
      card.obstacles[kHostRelay].empty() ? nvrtc_obstacle().value_or("") : card.obstacles[kHostRelay];
  return card;
}

constexpr char kWithCudaTensor[] = "with a CUDA tensor";

}  // namespace

std::size_t pinned_bytes() { return static_cast<std::size_t>(numeric_setting("ALTORCH_PINNED_BYTES")); }

BoardLayout board_layout(int ranks) {
  return BoardLayout::fitting(ranks, static_cast<std::size_t>(ranks) * pinned_bytes());
}

std::array<std::string, kGpuRouteIds> gpu_route_obstacles(int device) { return card_of(device).obstacles; }

GpuRoutes::GpuRoutes(Communicator& communicator, const Operation& first, std::chrono::milliseconds timeout,
                     GpuRouteOptions options)
    : communicator_(communicator), device_(first.device), timeout_(timeout), options_(std::move(options)) {
  AttendedStore store(communicator, first);
  const auto words = meet(store, "cuda", communicator.rank(), communicator.size(), timeout, kWithCudaTensor,
                          card_of(device_).text());
  std::vector<GpuCard> cards;
  for (const std::string& word : words) cards.push_back(GpuCard::from(word));
  world_ = World::of(cards);
  if (world_.one_home && world_.ranks > 1 && world_.ranks <= Agreement::kMostRanks) make_agreement(store);
  kernels_obstacle_ = cards[static_cast<std::size_t>(communicator.rank())].obstacles[kHostStaged];
}

void GpuRoutes::make_agreement(KeyValueStore& store) {
  const int rank = communicator_.rank(), size = communicator_.size();
  const std::size_t bytes = Agreement::bytes(size);
  agreement_.emplace(share_segment(store, "agreement/segment", rank, size, bytes, timeout_), rank, size);
}

void GpuRoutes::make_guard() {
  if (!options_.marks_results || !kernels_obstacle_.empty()) return;
  try {
    auto made = std::make_shared<PoisonGuard>(std::make_unique<CudaDevice>(device_, !world_.own_gpus));
    const std::lock_guard lock(mutex_);
    guard_ = std::move(made);
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    kernels_obstacle_ = error.what();
  }
}

void GpuRoutes::enqueue(GpuRoute& route, std::span<const Operation> operations, Stream stream) {
  route.enqueue(operations, stream);
  if (!guard_ || route.marks_results()) return;
  for (const Operation& operation : operations)
    guard_->guard(operation, communicator_.rank(), communicator_.size(), stream);
}

std::optional<std::string> GpuRoutes::mark_results() {
  const std::lock_guard lock(mutex_);
  if (!kernels_obstacle_.empty()) return kernels_obstacle_;
  if (guard_) guard_->raise();  // only NCCL needs one
  return std::nullopt;
}

GpuRoute& GpuRoutes::choose(std::span<const Operation> operations, bool capturing) {
  check_own_messages(operations, communicator_.rank());
  GpuRoute& route = find(operations, capturing);
  if (agreement_ && !capturing) {
    for (const Operation& operation : operations) agreement_->check(operation);
  }
  return route;
}

GpuRoute& GpuRoutes::find(std::span<const Operation> operations, bool capturing) {
  const Operation& first = operations.front();
  const std::string_view asked = rules_.gpu_route(first, world_.ranks);
  // NCCL always: later it may be needed while a graph is captured.
  if (asked.empty() && !world_.missing[kNccl]) made(kNccl, first);
  std::string reasons;
  for (const Candidate& candidate : Candidates(operations, world_, asked)) {
    auto reason = obstacle(candidate.id, operations, world_, capturing);
    if (!reason) {
      GpuRoute* route = made(candidate.id, first);
      if (route && candidate.in_pairs) route = in_pairs(first);
      if (route) return *route;
      reason = world_.missing[candidate.id];
    }
    if (candidate.only_small) continue;
    reasons += (reasons.empty() ? "" : "; ") + std::string(kGpuRouteNames[candidate.id]) + ": " + *reason;
  }
  throw Error(ErrorKind::kUnsupported, "no route can carry it between GPUs (" + reasons + "); " +
                                           (asked.empty() ? "use .cpu()" : "ALTORCH_ROUTE allows no other"));
}

GpuRoute* GpuRoutes::in_pairs(const Operation& operation) {
  if (!small_pairs_)
    small_pairs_.emplace(static_cast<Shared&>(*routes_[kHostStaged]),
                         static_cast<NcclRoute&>(*routes_[kNccl]), communicator_.rank(),
                         communicator_.size());
  return small_pairs_->serves(operation) ? &*small_pairs_ : nullptr;
}

GpuRoute* GpuRoutes::made(GpuRouteId id, const Operation& operation) {
  if (routes_[id]) return routes_[id].get();  // only choose() writes it
  // NCCL and MPI wait without end for a rank that does not come, so nobody begins before everybody is there.
  AttendedStore store(communicator_, operation);
  meet(store, std::string("route/") + std::string(kGpuRouteNames[id]), communicator_.rank(),
       communicator_.size(), timeout_, kWithCudaTensor);
  auto route = make(id, store, operation);
  const std::lock_guard lock(mutex_);
  routes_[id] = std::move(route);
  return routes_[id].get();
}

std::unique_ptr<GpuRoute> GpuRoutes::make(GpuRouteId id, KeyValueStore& store, const Operation& operation) {
  switch (id) {
    case kNccl: {
      auto made = std::move(options_.nccl_communicator);
      if (!made) {
        // NCCL has a deadline of its own.
        AttendedStore patient(communicator_, operation, std::chrono::hours(24));
        made = std::make_unique<nccl::Communicator>(store, "nccl", device_, communicator_.rank(),
                                                    communicator_.size(), timeout_, options_.nccl,
                                                    [&patient] { patient.attend(); });
      }
      if (options_.publish_nccl) options_.publish_nccl(made->handle(), true);
      published_ = true;
      make_guard();
      return std::make_unique<NcclRoute>(std::move(made));
    }
    case kHostStaged:
      return make_host_staged(store);
    case kHostRelay:
      return std::make_unique<Relay>(
          std::make_unique<CudaDevice>(device_, !world_.own_gpus), options_.make_carrier(),
          RelayOptions{
              .pinned_bytes = pinned_bytes(), .timeout = timeout_, .marks = kernels_obstacle_.empty()});
    case kGpuRouteIds:
      break;
  }
  return nullptr;
}

std::unique_ptr<GpuRoute> GpuRoutes::make_host_staged(KeyValueStore& store) {
  const int rank = communicator_.rank(), size = communicator_.size();
  auto device = std::make_unique<CudaDevice>(device_, !world_.own_gpus);
  const BoardLayout layout = board_layout(size);
  PinnedMemory memory;
  DeviceMemory scratch;
  std::string obstacle;
  try {
    memory = device->pin(share_segment(store, "host_staged/segment", rank, size, layout.bytes(), timeout_),
                         layout.bytes());
    scratch = device->allocate(Shared::scratch_bytes(layout));
  } catch (const Error& error) {
    obstacle = error.what();
  }
  const auto verdicts =
      meet(store, "host_staged", rank, size, timeout_, "to share memory for its CUDA tensors", obstacle);
  for (std::size_t other = 0; other < verdicts.size(); ++other) {
    if (verdicts[other].empty()) continue;
    world_.missing[kHostStaged] = "on rank " + std::to_string(other) + " " + verdicts[other];
    log(LogLevel::kWarning, "CUDA tensors of group '" + communicator_.name() +
                                "' go the slower way by host_relay: " + *world_.missing[kHostStaged]);
    return nullptr;
  }
  return std::make_unique<Shared>(std::move(device), Board(std::move(memory), layout, rank),
                                  std::move(scratch), rank, world_.own_gpus);
}

GpuRoutes::~GpuRoutes() { retire_nccl(); }

nccl::Communicator* GpuRoutes::nccl_communicator() {
  const std::lock_guard lock(mutex_);
  return routes_[kNccl] ? &static_cast<NcclRoute&>(*routes_[kNccl]).communicator() : nullptr;
}

// Others must not use a communicator that is no more.
void GpuRoutes::retire_nccl() {
  nccl::Communicator* made = nccl_communicator();
  const nccl::Comm comm = made ? made->handle() : nullptr;
  if (comm && published_.exchange(false) && options_.publish_nccl) options_.publish_nccl(comm, false);
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
  if (agreement_) {
    if (auto why = agreement_->aborted()) return Error(ErrorKind::kTransport, *why);
  }
  for (GpuRoute* route : all_made()) {
    if (auto error = route->failure()) return error;
  }
  return std::nullopt;
}

// NCCL last: it frees memory, for which the device has to come to the end of what the others hold up.
void GpuRoutes::abort(const std::string& why) {
  retire_nccl();
  if (agreement_) agreement_->abort(why);
  const auto routes = all_made();
  for (auto route = routes.rbegin(); route != routes.rend(); ++route) (*route)->abort(why);
}

}  // namespace altorch
