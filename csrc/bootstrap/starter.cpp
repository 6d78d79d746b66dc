#include "bootstrap/starter.h"

#include <unistd.h>

#include <fstream>
#include <set>
#include <string>

#include "bootstrap/environment.h"
#include "bootstrap/init_deadline.h"
#include "bootstrap/process_manager.h"
#include "bootstrap/signals.h"
#include "bootstrap/situation.h"
#include "common/error.h"

namespace altorch {
namespace {

// MPICH names its segment after the job and leaves it behind when it is killed. All ranks have it open now,
// so the name may go.
void unlink_segments() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> paths;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find("/dev/shm/mpich_shm_");
    if (at != std::string::npos && line.find(" (deleted)") == std::string::npos)
      paths.insert(line.substr(at));
  }
  for (const std::string& path : paths) unlink(path.c_str());
}

}  // namespace

std::shared_ptr<Mpi> init_plainly(const MpiLibrary& library, MpiThreadLevel level, MpiOrigin origin,
                                  const BootstrapOptions& options) {
  ScopedEnvironment environment;
  prepare_open_mpi(environment, library);
  SignalKeeper signals;
  InitDeadline deadline(options.timeout);
  return Mpi::initialise(library, level, origin);
}

std::shared_ptr<Mpi> bootstrap_mpi(const MpiLibrary& library, MpiThreadLevel level,
                                   const BootstrapOptions& options, const CardTable& table) {
  const Situation situation = survey(options, table);
  std::unique_ptr<ProcessManager> manager = start_process_manager(library, options, situation);
  std::shared_ptr<Mpi> mpi;
  {
    ScopedEnvironment environment;
    environment.scrub_launcher_variables();
    prepare_open_mpi(environment, library);
    manager->prepare(environment);
    SignalKeeper signals;
    InitDeadline deadline(options.timeout);
    try {
      mpi = Mpi::initialise(library, level, MpiOrigin::kBootstrap);
    } catch (...) {
      manager->detach_store();
      throw;
    }
  }
  manager->detach_store();
  if (mpi->size() == options.size) {
    if (!mpi->barrier(options.timeout)) {
      mpi->mark_broken();
      throw Error(ErrorKind::kTimeout, "MPI was started, but some rank does not answer.");
    }
    unlink_segments();
  }
  return mpi;
}

}  // namespace altorch
