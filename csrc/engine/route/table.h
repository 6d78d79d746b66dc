// SPDX-License-Identifier: BSD-3-Clause
// The ways for operations on CUDA tensors, the first that serves first.
#pragma once

#include <span>

#include "engine/route/row.h"

namespace altorch {

namespace gpu_rows {
extern const GpuRouteRow alone;  // of one rank
extern const GpuRouteRow nccl;   // one GPU per rank
extern const GpuRouteRow peer;   // memory of the ranks' own GPUs, which all of them map
extern const GpuRouteRow
    host_staged;  // pinned memory that a node's ranks share; the GPUs drive it themselves
extern const GpuRouteRow
    host_relay;  // pinned memory of each rank, carried by MPI or Gloo: any ranks anywhere
}  // namespace gpu_rows

std::span<const GpuRouteRow* const> gpu_route_rows();
// Its place among them.
std::size_t index_of(const GpuRouteRow& row);

}  // namespace altorch
