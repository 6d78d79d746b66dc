// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/starter.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "bootstrap/environment.h"
#include "bootstrap/init_deadline.h"
#include "bootstrap/peer_info.h"
#include "bootstrap/process_manager.h"
#include "bootstrap/shm_files.h"
#include "bootstrap/signals.h"
#include "bootstrap/topology.h"

namespace altorch {
namespace {

// How many ranks before this one live on its node.
int local_rank(const Topology& topology) {
  const auto own = topology.node_of_rank.begin() + topology.rank;
  return static_cast<int>(std::count(topology.node_of_rank.begin(), own, *own));
}

// After this all ranks have left MPI_Init.
void mpi_barrier(Mpi& mpi, std::chrono::milliseconds timeout) {
  if (mpi.barrier(timeout)) return;
  mpi.mark_broken();
  throw Error(ErrorKind::kTimeout, "MPI was started, but some rank does not answer.");
}

}  // namespace

std::shared_ptr<Mpi> init_plainly(const MpiLibrary& library, MpiThreadLevel level, MpiOrigin origin,
                                  const BootstrapOptions& options) {
  ScopedEnvironment environment;
  prepare_open_mpi(environment, library);
  SignalKeeper signals;
  std::shared_ptr<Mpi> mpi;
  {
    InitDeadline deadline;
    deadline.begin(options.timeout);
    mpi = Mpi::initialise(library, level, origin);
  }
  const bool is_whole_job = options.size < 0 || mpi->size() == options.size;
  if (mpi->origin() == MpiOrigin::kLauncher && library.family != MpiFamily::kOpenMpi && is_whole_job) {
    mpi_barrier(*mpi, options.timeout);
    remove_shm_names(kNoLocalRank);
  }
  return mpi;
}

std::shared_ptr<Mpi> bootstrap_mpi(const MpiLibrary& library, MpiThreadLevel level,
                                   const BootstrapOptions& options, const PeerTable& table) {
  const Topology topology = topology_of(options, table);
  std::unique_ptr<ProcessManager> manager;
  std::optional<InitDeadline> deadline;
  std::optional<Error> unsupported_reason;
  try {
    manager = start_process_manager(library, options, topology);
    deadline.emplace();
  } catch (const Error& error) {
    unsupported_reason = error;
  }
  // No rank enters MPI_Init before all can: it would wait there without end.
  bool all_can = false;
  try {
    all_can = all_agree(!unsupported_reason, options.size, *options.store, topology.prefix + "ready",
                        options.timeout);
  } catch (const Error&) {
    if (!unsupported_reason) throw;
  }
  if (unsupported_reason) throw Error(*unsupported_reason);
  if (!all_can) throw Error(ErrorKind::kUnsupported, "another rank cannot start it");
  std::shared_ptr<Mpi> mpi;
  {
    ScopedEnvironment environment;
    environment.scrub_launcher_variables();
    prepare_open_mpi(environment, library);
    manager->prepare(environment);
    SignalKeeper signals;
    deadline->begin(options.timeout);
    try {
      mpi = Mpi::initialise(library, level, MpiOrigin::kBootstrap);
    } catch (...) {
      manager->detach_store();
      throw;
    }
    deadline.reset();
  }
  manager->detach_store();
  if (mpi->size() == options.size) {
    mpi_barrier(*mpi, options.timeout);
    const std::string wanted_back = remove_shm_names(local_rank(topology));
    if (!wanted_back.empty()) mpi->before_finalize([wanted_back] { put_back(wanted_back); });
  }
  return mpi;
}

}  // namespace altorch
