#include "engine/route/decide.h"

#include "engine/host_staged/board.h"
#include "engine/host_staged/messages.h"
#include "engine/host_staged/pieces.h"
#include "engine/host_staged/shared.h"
#include "engine/nccl_route.h"

namespace altorch {
namespace {

// What a rank reads of all others in one kernel beside NCCL: more takes longer than NCCL does. Set, as the
// next, by benchmarks/cuda_routes.py.
constexpr std::size_t kSmallReads = 192 << 10;
// Up to so many bytes of a rank where ranks share a GPU: flags wait until it has switched between processes,
// the host does not.
constexpr std::size_t kSmallOnSharedGpu = 512 << 10;

constexpr const char* kReasons[kGpuRouteIds] = {"every rank has a GPU of its own, and NCCL has the operation",
                                                "the GPUs exchange through pinned memory themselves",
                                                "carries anything between any ranks"};

bool is_small(const Operation& operation, const World& world) {
  if (world.ranks < 2 || !is_vector_collective(operation.kind)) return false;
  const std::size_t reads = kSmallReads / static_cast<std::size_t>(world.ranks - 1);
  return Shared::is_small(operation, world.ranks,
                          world.own_gpus ? std::min(kSmallBesideNccl, reads) : kSmallOnSharedGpu);
}

}  // namespace

Candidates::Candidates(std::span<const Operation> operations, const World& world, std::string_view asked) {
  const Operation& first = operations.front();
  if (asked.empty() && operations.size() == 1) {
    if (first.kind == OpKind::kAllToAll && world.own_gpus && world.ranks > 1 && !world.missing[kNccl])
      add({kHostStaged, true, true,
           "small blocks, on one node: the host is done in half the time that NCCL needs"});
    if (is_small(first, world) && world.own_gpus)
      add({kHostStaged, false, true,
           "small, on one node: the host is done in half the time that NCCL needs"});
    if (is_small(first, world) && !world.own_gpus)
      add({kHostRelay, false, true,
           "small, on a GPU that ranks share: flags would wait for it to switch between processes"});
  }
  for (const GpuRouteId id : {kNccl, kHostStaged, kHostRelay}) {
    const bool named = asked == kGpuRouteNames[id];
    if (asked.empty() || named || (asked == kGpuRouteNames[kHostStaged] && id == kHostRelay))
      add({id, false, false, named ? "ALTORCH_ROUTE" : kReasons[id]});
  }
}

std::optional<std::string> obstacle(GpuRouteId id, std::span<const Operation> operations, const World& world,
                                    bool capturing) {
  if (world.missing[id]) return world.missing[id];
  if (id != kNccl && capturing)
    return "its operations cannot be captured into a CUDA graph: their flags differ from replay to replay";
  for (const Operation& operation : operations) {
    auto found = id == kNccl ? NcclRoute::obstacle_to(operation) : host_staged_obstacle(operation);
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace altorch
