// SPDX-License-Identifier: BSD-3-Clause
// Starts MPI for the job's first group, after its ranks have met in the store.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/store/rendezvous.h"
#include "transports/transport.h"

namespace altorch::backend {

struct MpiStart {
  std::string library;         // path
  std::string shim_directory;  // where the shims and helpers lie
  std::string job;             // the same on all ranks, new for every start of the job
  std::string master_address;
};

// MPI as the transport of a group and of groups that are split off it. With `start`, collective
// over the group: starts MPI, or uses it as it is if it runs on all ranks of the group.
// `mpi_ranks`: the members' ranks in MPI. Throws Error.
std::shared_ptr<Transport> mpi_transport(Rendezvous& group, const std::vector<int>& mpi_ranks,
                                         const std::optional<MpiStart>& start);

// How long MPI may take to start.
std::chrono::milliseconds bootstrap_timeout(std::chrono::milliseconds timeout);

}  // namespace altorch::backend
