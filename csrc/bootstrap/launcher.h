// SPDX-License-Identifier: BSD-3-Clause
// Which launcher started this process, told from the environment alone.
#pragma once

#include <string>

#include "transports/mpi/library.h"

namespace altorch {

enum class LauncherKind { kNone, kTorchrun, kOpenMpi, kHydra, kMvapich, kPals, kFlux, kJsm, kSlurm };

struct Launcher {
  LauncherKind kind = LauncherKind::kNone;
  std::string name = "none";  // for messages: "torchrun", "Open MPI's mpirun"
  int rank = -1;              // -1: not told
  int size = -1;
  int local_rank = -1;
  // Whether MPI_Init of such a library finds what it needs to join its peers.
  bool starts_mpich = false;
  bool starts_open_mpi = false;

  bool starts(MpiFamily family) const {
    return family == MpiFamily::kOpenMpi ? starts_open_mpi : starts_mpich;
  }
};

// torchrun comes first: under `srun torchrun` the launcher's variables belong to torchrun, not to
// its workers.
Launcher detect_launcher();

}  // namespace altorch
