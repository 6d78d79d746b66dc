// SPDX-License-Identifier: BSD-3-Clause
// The fast network devices of this machine, as sysfs shows them.
#pragma once

#include <string>
#include <vector>

namespace altorch {

// The active ports of all RDMA devices (InfiniBand, RoCE, EFA) as UCX names them: "mlx5_0:1". UCX
// warns of ports that are named but not active. A port that does not tell its state is included.
std::vector<std::string> active_rdma_ports(const std::string& devices = "/sys/class/infiniband");

bool has_slingshot();

// Whether an RDMA device with an active port, or a Slingshot device in any state, is in a NUMA node
// that holds all of `cores` (platform/cores.h). False if sysfs names no NUMA node for the device.
bool is_near_network(const std::string& cores, const std::string& sys = "/sys");

// Whether there is an active port of InfiniBand, RoCE or EFA, or a Slingshot device.
bool has_fast_network();

// Whether this node has Ethernet alone, and its user selects neither MPICH's netmod nor what UCX
// takes. altorch then prefers ofi: MPICH's MPI_Isend to a process that has died crashes over ucx.
bool may_choose_netmod();

}  // namespace altorch
