#include "engine/gpu_routes.h"

#include <algorithm>
#include <sstream>

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

// What a rank tells the others, one line each.
struct Card {
  std::string gpu, home;            // the same text: the same GPU, the same node
  std::string nccl, staged, relay;  // why not; empty: it can

  static Card of(int device) {
    Card card;
    card.gpu = CudaDevice::identity(device);
    card.home = shared_memory_home();
    try {
      nccl::library();
    } catch (const Error& error) {
      card.nccl = error.what();
    }
    card.relay = CudaDevice::obstacle(device).value_or("");
    card.staged = card.relay.empty() ? nvrtc_obstacle().value_or("") : card.relay;
    return card;
  }
  template <typename Each>
  void for_each(Each&& each) {
    for (std::string* line : {&gpu, &home, &nccl, &staged, &relay}) each(*line);
  }
  std::string text() {
    std::string all;
    for_each([&](std::string& line) {
      std::replace(line.begin(), line.end(), '\n', ' ');
      all += line + "\n";
    });
    return all;
  }
  static Card from(const std::string& text) {
    Card card;
    std::istringstream lines(text);
    card.for_each([&](std::string& line) { std::getline(lines, line); });
    return card;
  }
};

// What a rank reads of all others in one kernel beside NCCL: more takes longer than NCCL does.
constexpr std::size_t kSmallReads = 192 << 10;
// Up to so many bytes of a rank where ranks share a GPU: flags wait until it has switched between processes,
// the host does not.
constexpr std::size_t kSmallOnSharedGpu = 512 << 10;

constexpr char kWithCudaTensor[] = "with a CUDA tensor";

std::string on_rank(std::size_t rank, const std::string& reason) {
  return "on rank " + std::to_string(rank) + " " + reason;
}

}  // namespace

std::size_t pinned_bytes() { return static_cast<std::size_t>(numeric_setting("ALTORCH_PINNED_BYTES")); }

BoardLayout board_layout(int ranks) {
  return BoardLayout::fitting(ranks, static_cast<std::size_t>(ranks) * pinned_bytes());
}

std::array<std::string, 3> gpu_route_obstacles(int device) {
  const Card card = Card::of(device);
  return {card.nccl, card.staged, card.relay};
}

GpuRoutes::GpuRoutes(Communicator& communicator, const Operation& first, std::chrono::milliseconds timeout,
                     GpuRouteOptions options)
    : communicator_(communicator), device_(first.device), timeout_(timeout), options_(std::move(options)) {
  AttendedStore store(communicator, first);
  const auto words = meet(store, "cuda", communicator.rank(), communicator.size(), timeout, kWithCudaTensor,
                          Card::of(device_).text());
  std::vector<Card> cards;
  for (const std::string& word : words) cards.push_back(Card::from(word));
  const auto miss = [&](Kind kind, const std::string& reason) {
    if (!missing_[kind]) missing_[kind] = reason;
  };
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    if (!card.nccl.empty()) miss(kNccl, on_rank(rank, card.nccl));
    if (!card.staged.empty()) miss(kHostStaged, on_rank(rank, card.staged));
    if (!card.relay.empty()) miss(kHostRelay, on_rank(rank, card.relay));
    if (card.home != cards.front().home)
      miss(kHostStaged, "ranks 0 and " + std::to_string(rank) + " share no memory");
    for (std::size_t other = 0; other < rank; ++other) {
      if (cards[other].gpu != card.gpu) continue;
      own_gpus_ = false;
      miss(kNccl, "ranks " + std::to_string(other) + " and " + std::to_string(rank) +
                      " share one GPU, which NCCL refuses");
    }
  }
  if (communicator.size() > DeviceReduction::kMaxParts)
    miss(kHostStaged, "there are more than " + std::to_string(DeviceReduction::kMaxParts) + " ranks");
  const bool one_home = std::all_of(cards.begin(), cards.end(),
                                    [&](const Card& card) { return card.home == cards.front().home; });
  if (one_home && communicator.size() > 1 && communicator.size() <= Agreement::kMostRanks)
    make_agreement(store);
  kernels_obstacle_ = cards[static_cast<std::size_t>(communicator.rank())].staged;
}

void GpuRoutes::make_agreement(KeyValueStore& store) {
  const int rank = communicator_.rank(), size = communicator_.size();
  const std::size_t bytes = Agreement::bytes(size);
  agreement_.emplace(share_segment(store, "agreement/segment", rank, size, bytes, timeout_), rank, size);
}

void GpuRoutes::make_guard() {
  if (!options_.marks_results || !kernels_obstacle_.empty()) return;
  try {
    auto made = std::make_shared<PoisonGuard>(std::make_unique<CudaDevice>(device_, !own_gpus_));
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

std::optional<std::string> GpuRoutes::obstacle(Kind kind, std::span<const Operation> operations,
                                               bool capturing) const {
  if (missing_[kind]) return missing_[kind];
  if (kind != kNccl && capturing)
    return "its operations cannot be captured into a CUDA graph: their flags differ from replay to replay";
  for (const Operation& operation : operations) {
    const auto found = kind == kNccl ? NcclRoute::obstacle_to(operation) : host_staged_obstacle(operation);
    if (found) return found;
  }
  return std::nullopt;
}

std::optional<GpuRoutes::Kind> GpuRoutes::preferred(int ranks, bool own_gpus, const Operation& operation) {
  if (ranks < 2 || !is_vector_collective(operation.kind)) return std::nullopt;
  const std::size_t most = own_gpus
                               ? std::min(kSmallBesideNccl, kSmallReads / static_cast<std::size_t>(ranks - 1))
                               : kSmallOnSharedGpu;
  if (!Shared::is_small(operation, ranks, most)) return std::nullopt;
  return own_gpus ? kHostStaged : kHostRelay;
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
  const std::string_view asked = rules_.gpu_route(operations.front(), communicator_.size());
  if (asked.empty()) {
    // NCCL always: later it may be needed while a graph is captured.
    if (!missing_[kNccl]) made(kNccl, operations.front());
    const auto small = operations.size() == 1 ? preferred(communicator_.size(), own_gpus_, operations.front())
                                              : std::nullopt;
    if (GpuRoute* route = in_pairs(operations, capturing)) return *route;
    const bool serves = small && !obstacle(*small, operations, capturing);
    if (GpuRoute* route = serves ? made(*small, operations.front()) : nullptr) return *route;
  }
  std::string reasons;
  for (const Kind kind : {kNccl, kHostStaged, kHostRelay}) {
    // Who asks for staging through the host means either way.
    const bool allowed = asked.empty() || asked == kGpuRouteNames[kind] ||
                         (asked == kGpuRouteNames[kHostStaged] && kind == kHostRelay);
    if (!allowed) continue;
    auto reason = obstacle(kind, operations, capturing);
    if (!reason) {
      if (GpuRoute* route = made(kind, operations.front())) return *route;
      reason = missing_[kind];
    }
    reasons += (reasons.empty() ? "" : "; ") + std::string(kGpuRouteNames[kind]) + ": " + *reason;
  }
  throw Error(ErrorKind::kUnsupported, "no route can carry it between GPUs (" + reasons + "); " +
                                           (asked.empty() ? "use .cpu()" : "ALTORCH_ROUTE allows no other"));
}

// What all ranks know alike decides whether there is shared memory for it, for they have to make that
// together; then each looks at its own blocks.
GpuRoute* GpuRoutes::in_pairs(std::span<const Operation> operations, bool capturing) {
  const Operation& operation = operations.front();
  const bool possible = operation.kind == OpKind::kAllToAll && operations.size() == 1 && own_gpus_ &&
                        communicator_.size() > 1 && !missing_[kNccl];
  if (!possible || obstacle(kHostStaged, operations, capturing) || !made(kHostStaged, operation))
    return nullptr;
  if (!small_pairs_)
    small_pairs_.emplace(static_cast<Shared&>(*routes_[kHostStaged]),
                         static_cast<NcclRoute&>(*routes_[kNccl]), communicator_.rank(),
                         communicator_.size());
  return small_pairs_->serves(operation) ? &*small_pairs_ : nullptr;
}

GpuRoute* GpuRoutes::made(Kind kind, const Operation& operation) {
  if (routes_[kind]) return routes_[kind].get();  // only choose() writes it
  // NCCL and MPI wait without end for a rank that does not come, so nobody begins before everybody is there.
  AttendedStore store(communicator_, operation);
  meet(store, std::string("route/") + std::string(kGpuRouteNames[kind]), communicator_.rank(),
       communicator_.size(), timeout_, kWithCudaTensor);
  auto route = make(kind, store, operation);
  const std::lock_guard lock(mutex_);
  routes_[kind] = std::move(route);
  return routes_[kind].get();
}

std::unique_ptr<GpuRoute> GpuRoutes::make(Kind kind, KeyValueStore& store, const Operation& operation) {
  switch (kind) {
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
    default:
      return std::make_unique<Relay>(
          std::make_unique<CudaDevice>(device_, !own_gpus_), options_.make_carrier(),
          RelayOptions{
              .pinned_bytes = pinned_bytes(), .timeout = timeout_, .marks = kernels_obstacle_.empty()});
  }
}

std::unique_ptr<GpuRoute> GpuRoutes::make_host_staged(KeyValueStore& store) {
  const int rank = communicator_.rank(), size = communicator_.size();
  auto device = std::make_unique<CudaDevice>(device_, !own_gpus_);
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
    missing_[kHostStaged] = on_rank(other, verdicts[other]);
    log(LogLevel::kWarning, "CUDA tensors of group '" + communicator_.name() +
                                "' go the slower way by host_relay: " + *missing_[kHostStaged]);
    return nullptr;
  }
  return std::make_unique<Shared>(std::move(device), Board(std::move(memory), layout, rank),
                                  std::move(scratch), rank, own_gpus_);
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
