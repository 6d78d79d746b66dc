#include "engine/route/table.h"

#include <algorithm>

namespace altorch {
namespace {

constexpr const GpuRouteRow* kRows[] = {&gpu_rows::alone, &gpu_rows::nccl, &gpu_rows::peer,
                                        &gpu_rows::host_staged, &gpu_rows::host_relay};

}  // namespace

std::span<const GpuRouteRow* const> gpu_route_rows() { return kRows; }

std::size_t index_of(const GpuRouteRow& row) {
  return static_cast<std::size_t>(std::find(std::begin(kRows), std::end(kRows), &row) - std::begin(kRows));
}

}  // namespace altorch
