// SPDX-License-Identifier: BSD-3-Clause
// What the rooms above offer. Each defines its own rows; the order among them is defined here.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "select/row.h"

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

// The ways for operations on CUDA tensors, the first that serves first.
std::span<const GpuRouteRow* const> gpu_route_rows();
// Its place among them.
std::size_t index_of(const GpuRouteRow& row);

// The ways to reach the memory of other ranks, for ALTORCH_ROUTE=window=<name>: the names of the
// rows in windows/row.h.
std::vector<std::string_view> window_row_names();

}  // namespace altorch
