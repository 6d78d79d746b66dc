// SPDX-License-Identifier: BSD-3-Clause
// The three ways into MPI_Init; bootstrap.cpp chooses.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/bootstrap.h"
#include "bootstrap/peer_info.h"

namespace altorch {

// Calls MPI_Init as the launcher prepared it, or takes the MPI that other code in this process has
// initialised.
std::shared_ptr<Mpi> init_plainly(const MpiLibrary& library, MpiThreadLevel level, MpiOrigin origin,
                                  const BootstrapOptions& options);

// altorch acts as the launcher. All ranks have agreed (`table`), and call this at the same time.
std::shared_ptr<Mpi> bootstrap_mpi(const MpiLibrary& library, MpiThreadLevel level,
                                   const BootstrapOptions& options, const PeerTable& table);

}  // namespace altorch
