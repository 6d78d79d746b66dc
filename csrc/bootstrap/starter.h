// SPDX-License-Identifier: BSD-3-Clause
// The three ways into MPI_Init; bootstrap.cpp chooses.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/bootstrap.h"
#include "bootstrap/peer_info.h"

namespace altorch {

// MPI_Init as the launcher prepared it, or MPI as somebody else initialised it.
std::shared_ptr<Mpi> init_plainly(const MpiLibrary& library, MpiThreadLevel level, MpiOrigin origin,
                                  const BootstrapOptions& options);

// We play the launcher. Every rank has agreed (`table`) and calls it at the same time.
std::shared_ptr<Mpi> bootstrap_mpi(const MpiLibrary& library, MpiThreadLevel level,
                                   const BootstrapOptions& options, const PeerTable& table);

}  // namespace altorch
