#include "engine/route/decide.h"

namespace altorch {

Candidates::Candidates(std::span<const Operation> operations, const World& world, std::string_view asked) {
  const Operation& first = operations.front();
  if (asked.empty() && operations.size() == 1) {
    const bool has_nccl = !world.missing[index_of(gpu_rows::nccl)];
    if (first.kind == OpKind::kAllToAll && world.own_gpus() && world.ranks > 1 && has_nccl)
      add({&gpu_rows::host_staged, true, true,
           "small blocks, on one node: the host is done in half the time that NCCL needs"});
    for (const GpuRouteRow* row : gpu_route_rows()) {
      const char* reason = row->takes_small(first, world);
      if (reason) add({row, false, true, reason});
    }
  }
  for (const GpuRouteRow* row : gpu_route_rows()) {
    if (asked.empty()) add({row, false, false, row->reason});
    if (!asked.empty() && asked == row->name) add({row, false, false, "ALTORCH_ROUTE"});
    if (!asked.empty() && asked == row->instead) add({row, false, false, row->reason});
  }
}

std::optional<std::string> obstacle(const GpuRouteRow& row, std::span<const Operation> operations,
                                    const World& world, bool capturing) {
  if (const auto& missing = world.missing[index_of(row)]) return missing;
  if (!row.captures && capturing)
    return "its operations cannot be captured into a CUDA graph: their flags differ from replay to replay";
  for (const Operation& operation : operations) {
    if (auto found = row.obstacle_to(operation)) return found;
  }
  return std::nullopt;
}

}  // namespace altorch
