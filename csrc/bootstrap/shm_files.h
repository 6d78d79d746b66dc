// SPDX-License-Identifier: BSD-3-Clause
// MPI's files in /dev/shm, which stay there for good when its processes are killed (and those of
// Open MPI 5, whose mpirun removes them, after every end without one). Once all ranks have them
// open, the names may go. Open MPI's mpirun removes its files itself; MPICH's does not.
#pragma once

#include <string>

namespace altorch {

constexpr int kNoLocalRank = -1;

// Removes the names of the segments that this process has mapped; of Open MPI's only its own, that
// of the `local_rank`-th rank of the node (kNoLocalRank: none). Every rank must have left MPI_Init.
//
// Returns the name that Open MPI 4's MPI_Finalize wants to remove itself: it complains loudly when
// it cannot. Empty for every other MPI.
std::string remove_shm_names(int local_rank);

// Gives MPI_Finalize something to remove.
void put_back(const std::string& segment_name);

}  // namespace altorch
