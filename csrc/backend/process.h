// What one process has once, whatever its groups: MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/rendezvous.h"
#include "bootstrap/bootstrap.h"
#include "engine/communicator.h"

namespace altorch::backend {

struct JobSettings {
  std::string mpi_library;  // path
  std::string shim_directory;
  std::string job_id;  // the same on all ranks, new for every start of the job
  std::string master_address;
};

// Called for the first group of a job, before join_group: starts MPI. When it is called again MPI is used as
// it is. Throws Error.
void start_job_mpi(const JobSettings& settings, Rendezvous& group);

// How long MPI may take to start.
std::chrono::milliseconds bootstrap_patience(std::chrono::milliseconds timeout);

// Collective over the group, right after its ranks have met: makes its communicator. Throws Error.
std::shared_ptr<Communicator> join_group(Rendezvous& group);

// At exit: lets MPI go, if that is safe. `after_failure`: the program ends with an error, so that the others
// need not come to MPI_Finalize.
void finalize_job(bool after_failure);

// One line for `altorch info`: the MPI in use, or why there is none.
std::string describe_job();

}  // namespace altorch::backend
