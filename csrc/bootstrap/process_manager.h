// SPDX-License-Identifier: BSD-3-Clause
// Answers what MPI_Init asks: the rank of this process, and where its peers are. There is one kind
// for each way in which an MPI library asks.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/bootstrap.h"
#include "bootstrap/environment.h"
#include "bootstrap/topology.h"

namespace altorch {

class ProcessManager {
 public:
  virtual ~ProcessManager() = default;
  // Sets what MPI_Init reads, in an environment that holds no other launcher's identity.
  virtual void prepare(ScopedEnvironment& environment) = 0;
  // Called when MPI_Init has returned: the store is not used any more.
  virtual void detach_store() = 0;
};

// Starts the process manager that `library` understands.
std::unique_ptr<ProcessManager> start_process_manager(const MpiLibrary& library,
                                                      const BootstrapOptions& options,
                                                      const Topology& topology);

// Why no process manager can serve this library here, or empty.
std::string process_manager_problem(const MpiLibrary& library, const BootstrapOptions& options);

// Settings that an Open MPI needs however it is started: where it is installed, and no search for
// networks that are not there.
void prepare_open_mpi(ScopedEnvironment& environment, const MpiLibrary& library);

}  // namespace altorch
