// SPDX-License-Identifier: BSD-3-Clause
#include "select/gpu_route.h"

#include <algorithm>

namespace altorch {
namespace {

constexpr const GpuRouteRow* kGpuRoutes[] = {&gpu_rows::alone,        &gpu_rows::nccl,
                                             &gpu_rows::peer,         &gpu_rows::host_staged,
                                             &gpu_rows::hierarchical, &gpu_rows::host_relay};

}  // namespace

std::span<const GpuRouteRow* const> gpu_route_rows() { return kGpuRoutes; }

std::size_t index_of(const GpuRouteRow& row) {
  return static_cast<std::size_t>(std::find(std::begin(kGpuRoutes), std::end(kGpuRoutes), &row) -
                                  std::begin(kGpuRoutes));
}

}  // namespace altorch
