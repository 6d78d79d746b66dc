// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/gpu_routes.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/adaptive_wait.h"
#include "base/leak_intentionally.h"
#include "base/wait_clock.h"
#include "collectives/hierarchical/layout.h"
#include "gpu/host_staged/host_staged.h"
#include "gpu/nccl_route.h"
#include "gpu/route_opening.h"
#include "rendezvous/shared_memory.h"
#include "rendezvous/store_allgather.h"
#include "runtime/watchdog_store.h"

namespace altorch {
namespace {

GpuPeerInfo info_of(const GpuSource& gpus, int device) {
  GpuPeerInfo peer{.gpu = gpus.identity(device),
                   .node = gpus.node(),
                   .mps = gpus.mps(device),
                   .multiprocessors = gpus.multiprocessors ? gpus.multiprocessors(device) : 0,
                   .links = gpus.links ? gpus.links(device) : std::vector<std::string>{},
                   .unsupported_reasons = {}};
  for (const GpuRouteRow* row : gpu_route_rows())
    peer.unsupported_reasons.push_back(row->unsupported_on(gpus, device).value_or(""));
  return peer;
}

constexpr char kWithCudaTensor[] = "with a CUDA tensor";
constexpr std::chrono::seconds kLookTimeout{1};

}  // namespace

std::vector<RouteUnsupportedReason> gpu_route_unsupported_reasons(int device) {
  const GpuSource gpus = cuda_gpus();
  std::vector<RouteUnsupportedReason> found;
  for (const GpuRouteRow* row : gpu_route_rows())
    found.push_back({row->name, row->unsupported_on(gpus, device).value_or("")});
  return found;
}

GpuRoutes::GpuRoutes(Communicator& communicator, const Operation& first, std::chrono::milliseconds timeout,
                     GpuRouteOptions options)
    : communicator_(communicator),
      device_(first.device),
      timeout_(timeout),
      options_(std::move(options)),
      rules_(communicator.rules()) {
  WatchdogStore store(communicator, first);
  const auto texts = store_allgather(store, "cuda", communicator.rank(), communicator.size(), timeout,
                                     kWithCudaTensor, info_of(options_.gpus, device_).text());
  std::vector<GpuPeerInfo> peers;
  for (const std::string& text : texts) peers.push_back(GpuPeerInfo::from(text));
  world_ = World::of(peers);
  routes_.resize(gpu_route_rows().size());
  ll_pairs_.resize(routes_.size());
  make_agreement(store);
  kernels_unsupported_reason_ = peers[static_cast<std::size_t>(communicator.rank())]
                                    .unsupported_reasons[index_of(gpu_rows::host_staged)];
}

void GpuRoutes::make_agreement(KeyValueStore& store) {
  std::vector<int> here = all_ranks();
  if (!world_.node_of_rank.empty())
    here = hierarchical::Layout(world_.node_of_rank, communicator_.rank()).neighbours();
  else if (!world_.one_node())
    return;  // a rank on each
  const auto size = static_cast<int>(here.size());
  if (size == 1 || size > Agreement::kMostRanks) return;
  const auto place = std::ranges::find(here, communicator_.rank()) - here.begin();
  auto memory = share_memory(store, "agreement/segment/" + std::to_string(here.front()),
                             static_cast<int>(place), size, Agreement::bytes(size), timeout_);
  agreement_.emplace(std::move(memory), communicator_.rank(), std::move(here));
}

std::vector<int> GpuRoutes::all_ranks() const {
  std::vector<int> all(static_cast<std::size_t>(communicator_.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void GpuRoutes::make_guard() {
  if (!options_.marks_results || !kernels_unsupported_reason_.empty()) return;
  try {
    auto made = std::make_shared<PoisonGuard>(options_.gpus.open(device_, !world_.own_gpus()));
    const std::lock_guard lock(mutex_);
    guard_ = std::move(made);
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    kernels_unsupported_reason_ = error.what();
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
  if (!kernels_unsupported_reason_.empty()) return kernels_unsupported_reason_;
  if (guard_) guard_->raise();  // only NCCL needs one
  return std::nullopt;
}

// The owner of a CUDA graph may still replay it, for an unknown time. So the guard, and each route
// that its graphs do not outlive, stay for the life of the process.
GpuRoutes::~GpuRoutes() {
  for (auto& route : routes_) {
    if (!route || !(outlived_ || (in_graphs_ && !route->outlived_by_graphs()))) continue;
    route->leave_to_graphs();
    leak_intentionally(std::make_unique<std::shared_ptr<GpuRoute>>(std::move(route)));
  }
  if ((outlived_ || in_graphs_) && guard_)
    leak_intentionally(std::make_unique<std::shared_ptr<PoisonGuard>>(std::move(guard_)));
}

GpuRoute& GpuRoutes::choose(std::span<const Operation> operations, bool capturing) {
  if (suspended_) {
    throw Error(
        ErrorKind::kUnsupported,
        "the group has given back its memory of the GPU (suspend()); every rank calls resume() first");
  }
  check_own_messages(operations, communicator_.rank());
  GpuRoute& route = find(operations, capturing);
  if (capturing) in_graphs_ = true;
  if (agreement_ && !capturing) {
    const bool even = &route == routes_[index_of(gpu_rows::hierarchical)].get();
    for (const Operation& operation : operations) agreement_->check(operation, even);
  }
  return route;
}

GpuRoute* GpuRoutes::look_for(std::span<const Operation> operations, bool capturing, std::string& reasons) {
  const Operation& first = operations.front();
  const std::string_view asked = asked_gpu_route(rules_, operations, world_);
  for (const GpuRouteRow* row : gpu_route_rows()) {
    if (!asked.empty() || !row->opens_at_once || world_.missing[index_of(*row)]) continue;
    if (made(*row, first) && row->forced) break;
  }
  GpuRoute* found = nullptr;
  const auto takes = [&](const Route& route) {
    auto reason = unsupported_reason(route, operations, world_, capturing ? &rules_ : nullptr);
    const bool opens_here = route.row->forced || (route.row->opens_at_once && world_.ranks > 1);
    if (!reason && capturing && !routes_[index_of(*route.row)] && !opens_here)
      reason =
          "it was not used before the graph is captured, which cannot wait for it; make the call once before";
    if (!reason) {
      found = made(*route.row, first);
      if (const char* why = found && capturing ? found->capture_unsupported_reason() : nullptr) {
        found = nullptr;
        reason = why;
      } else {
        if (found && route.in_pairs) found = in_pairs(*found, index_of(*route.row), first);
        if (found) return true;
        reason = world_.missing[index_of(*route.row)];
      }
    }
    if (!route.early && (!route.row->forced || asked == route.name))
      reasons += (reasons.empty() ? "" : "; ") + std::string(route.name) + ": " + *reason;
    return false;
  };
  decide(operations, world_, rules_, std::ref(takes));
  return found;
}

GpuRoute& GpuRoutes::find(std::span<const Operation> operations, bool capturing) {
  std::string reasons;
  if (GpuRoute* const found = look_for(operations, capturing, reasons)) return *found;
  const bool any = asked_gpu_route(rules_, operations, world_).empty();
  throw Error(ErrorKind::kUnsupported, "no route can carry it between GPUs (" + reasons + "); " +
                                           (any ? "use .cpu()" : "ALTORCH_ROUTE allows no other"));
}

bool GpuRoutes::can_carry(const Operation& operation, bool capturing) {
  std::string reasons;
  return !suspended_ && look_for({&operation, 1}, capturing, reasons);
}

GpuRoute* GpuRoutes::in_pairs(GpuRoute& small, std::size_t place, const Operation& operation) {
  auto& pairs = ll_pairs_[place];
  if (!pairs) {
    auto& nccl = static_cast<NcclRoute&>(*routes_[index_of(gpu_rows::nccl)]);
    pairs = std::make_unique<LlPairs>(small.name(), *small.ll_exchanges(), nccl, communicator_.rank(),
                                      communicator_.size());
  }
  return pairs->serves(operation) ? pairs.get() : nullptr;
}

GpuRoute* GpuRoutes::made(const GpuRouteRow& row, const Operation& operation) {
  const std::size_t place = index_of(row);
  if (routes_[place]) return routes_[place].get();  // only choose() writes it
  if (options_.before_opening) options_.before_opening();
  // NCCL and MPI wait without end for a missing rank. So no rank begins before all ranks are there.
  WatchdogStore checked(communicator_, operation);
  // Keys are used once.
  const std::string prefix = suspensions_ == 0 ? "" : "resumed/" + std::to_string(suspensions_) + "/";
  PrefixView store(checked, prefix);
  store_allgather(store, "route/" + std::string(row.name), communicator_.rank(), communicator_.size(),
                  timeout_, kWithCudaTensor);
  RouteOpening opening{communicator_,
                       all_ranks(),
                       store,
                       prefix,
                       operation,
                       device_,
                       timeout_,
                       world_,
                       rules_,
                       options_,
                       kernels_unsupported_reason_.empty()};
  OpenedRoute opened = row.open(opening);
  if (!opened.route) world_.missing[place] = opened.unsupported_reason;
  if (opened.route && row.guarded) make_guard();
  const std::lock_guard lock(mutex_);
  routes_[place] = std::move(opened.route);
  return routes_[place].get();
}

std::shared_ptr<nccl::NcclComm> GpuRoutes::nccl_communicator() {
  const std::lock_guard lock(mutex_);
  const std::size_t place = index_of(gpu_rows::nccl);
  if (place >= routes_.size() || !routes_[place]) return nullptr;
  return {routes_[place], &static_cast<NcclRoute&>(*routes_[place]).communicator()};
}

std::string GpuRoutes::next_key() { return "suspend/" + std::to_string(++exchanges_); }

// All ranks give back the same routes. Otherwise a rank could free memory that a peer still writes
// to, or keep memory that a peer gives back.
void GpuRoutes::suspend(const Operation& call, const std::string& unsupported_reason) {
  constexpr char kHasGraphs = 'g', kHasNone = '-';
  WatchdogStore store(communicator_, call);
  std::string own = suspended_ ? "it is suspended already" : unsupported_reason;
  auto nccl = nccl_communicator();
  const auto nccl_ends = nccl ? nccl->suspend_unsupported_reason() : std::nullopt;
  if (own.empty() && nccl_ends && nccl->has_buffers())
    own = *nccl_ends + ", and memory is registered with it; deregister that first";
  const auto texts = store_allgather(store, next_key(), communicator_.rank(), communicator_.size(), timeout_,
                                     "to suspend()", (in_graphs_ ? kHasGraphs : kHasNone) + own);
  bool graphs = false;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const bool has_graphs = texts[rank].front() == kHasGraphs;
    std::string why = texts[rank].substr(1);
    if (why.empty() && has_graphs && nccl_ends) why = *nccl_ends + ", and CUDA graphs use it";
    if (!why.empty()) {
      throw Error(ErrorKind::kUnsupported,
                  "nothing can be given back: on rank " + std::to_string(rank) + " " + why);
    }
    graphs |= has_graphs;
  }
  if (nccl && !nccl_ends) nccl->suspend([&store] { store.check_peers(); });
  nccl.reset();
  if (!graphs) end_routes(nccl_ends.has_value());
  suspended_ = true;
  ++suspensions_;
}

void GpuRoutes::end_routes(bool nccl_too) {
  std::vector<std::shared_ptr<GpuRoute>> given_back;
  for (auto& pairs : ll_pairs_) pairs = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t place = 0; place < routes_.size(); ++place) {
      const bool stays = !nccl_too && place == index_of(gpu_rows::nccl);
      if (routes_[place] && routes_[place]->takes_gpu_memory() && !stays)
        given_back.push_back(std::move(routes_[place]));
    }
  }
  // Another thread may use a route for a short time more. The thread that drops the last reference
  // destroys the route, and that should be this thread.
  AdaptiveWait wait;
  const auto in_use = [](const auto& route) { return route.use_count() > 1; };
  for (const auto until = WaitClock::now() + kLookTimeout;
       std::any_of(given_back.begin(), given_back.end(), in_use) && WaitClock::now() < until;)
    wait.pause();
}

void GpuRoutes::resume(const Operation& call) {
  WatchdogStore store(communicator_, call);
  if (const auto why =
          first_unsupported_reason(store, next_key(), communicator_.rank(), communicator_.size(), timeout_,
                                   "to resume()", suspended_ ? "" : "it is not suspended"))
    throw Error(ErrorKind::kUnsupported, "it cannot go on: " + *why);
  if (const auto nccl = nccl_communicator()) nccl->resume([&store] { store.check_peers(); });
  suspended_ = false;
}

GpuRoutes::Memory GpuRoutes::memory() {
  Memory found{.suspended = suspended_};
  for (const auto& route : all_made()) {
    const GpuRoute::Held held = route->holds();
    const bool stays = (in_graphs_ || suspended_) && !route->outlived_by_graphs();
    found.on_host += held.on_host;
    found.persistent += stays ? held.on_gpu : held.persistent;
    found.suspendable += stays ? 0 : held.on_gpu - held.persistent;
  }
  return found;
}

std::vector<std::shared_ptr<GpuRoute>> GpuRoutes::all_made() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<GpuRoute>> found;
  for (const auto& route : routes_) {
    if (route) found.push_back(route);
  }
  return found;
}

std::optional<Error> GpuRoutes::failure() {
  if (agreement_) {
    if (auto why = agreement_->aborted()) return Error(ErrorKind::kTransport, *why);
  }
  for (const auto& route : all_made()) {
    if (auto error = route->failure()) return error;
  }
  return std::nullopt;
}

// NCCL last: it frees memory, for which the device has to come to the end of what the others hold
// up.
void GpuRoutes::abort(const std::string& why) {
  if (agreement_) agreement_->abort(why);
  const auto routes = all_made();
  for (auto route = routes.rbegin(); route != routes.rend(); ++route) (*route)->abort(why);
}

// Routes over NCCL are aborted only if their results can be marked: otherwise leftover data would
// look like a result. NCCL keeps what its graphs need, even after its own end.
void GpuRoutes::end_replays(const std::string& why) {
  const bool marks = !mark_results() && has_guard();
  const auto routes = all_made();
  for (auto route = routes.rbegin(); route != routes.rend(); ++route) {
    if (marks || !(*route)->outlived_by_graphs()) (*route)->abort(why);
  }
}

bool GpuRoutes::has_guard() {
  const std::lock_guard lock(mutex_);
  return guard_ != nullptr;
}

}  // namespace altorch
