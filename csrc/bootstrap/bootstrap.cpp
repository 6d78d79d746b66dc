// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/bootstrap.h"

#include <mutex>

#include "base/env.h"
#include "base/error.h"
#include "bootstrap/environment.h"
#include "bootstrap/launcher.h"
#include "bootstrap/peer_info.h"
#include "bootstrap/process_manager.h"
#include "bootstrap/signals.h"
#include "bootstrap/starter.h"
#include "platform/cores.h"
#include "platform/fabric.h"
#include "platform/host_namespace.h"

namespace altorch {
namespace {

struct Running {
  std::mutex mutex;
  std::shared_ptr<Mpi> mpi;
  std::string job;
  std::string unsupported_reason = "no group was made yet";
};
Running& running() {
  // Never destroyed: MPI's own exit handlers come later than ours.
  static Running* instance = new Running;
  return *instance;
}

MpiThreadLevel wanted_thread_level() {
  const std::string word = setting("ALTORCH_MPI_THREAD");
  if (word == "serialized") return MpiThreadLevel::kSerialized;
  if (word == "multiple") return MpiThreadLevel::kMultiple;
  if (word == "single") return MpiThreadLevel::kSingle;
  throw Error(ErrorKind::kInvalidArgument, "ALTORCH_MPI_THREAD='" + word + "' is no thread level");
}

StartMode mode_for(const MpiLibrary& library, const BootstrapOptions& options, const Launcher& launcher) {
  int flag = 0;
  library.table->initialized(&flag);
  if (flag) return StartMode::kExisting;
  const bool same_world =
      options.rank < 0 || (launcher.rank == options.rank && launcher.size == options.size);
  if (launcher.starts(library.family) && same_world) return StartMode::kLauncher;
  return StartMode::kBootstrap;
}

// What this rank tells the others, and the library if it loads. Problems are told, for all ranks to
// see.
PeerInfo own_info(const BootstrapOptions& options, const Launcher& launcher, MpiLibrary& library) {
  PeerInfo peer;
  try {
    peer.node = same_node_key();
    peer.cores = usable_cores();
    peer.network = host_namespace("net");
    peer.memory = own_memory_probe();
    peer.free_shared_memory = free_shared_memory();
    const RouteToHost route = route_to(options.master_address);
    peer.address = route.address;
    peer.address_is_loopback = route.is_loopback;
    if (running().mpi) {
      library = running().mpi->library();
      peer.mode = StartMode::kRunning;
      peer.job = running().job;
    } else {
      SignalKeeper signals;  // libucs takes SIGHUP and the fatal ones as soon as it is loaded
      ScopedEnvironment environment;
      environment.set_default("UCX_LOG_FILE", "stderr");  // the standard output is the program's
      library = load_mpi_library(options.library, options.shim_directory);
      peer.mode = mode_for(library, options, launcher);
    }
    peer.version = library.version;
    peer.has_fast_network = has_fast_network();
    peer.allows_ofi = library.has_ucx_and_ofi && may_choose_netmod();
    wanted_thread_level();
    const bool is_up = peer.mode == StartMode::kExisting || peer.mode == StartMode::kRunning;
    if (!is_up) peer.problem = mpi_unsupported_reason();
    if (peer.mode == StartMode::kBootstrap && peer.problem.empty())
      peer.problem = process_manager_problem(library, options);
  } catch (const Error& error) {
    peer.problem = error.what();
  }
  return peer;
}

// One sentence that is the same on every rank, or empty.
std::string disagreement(const std::vector<PeerInfo>& peers) {
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (!peers[i].problem.empty())
      return "Rank " + std::to_string(i) + " cannot use MPI: " + peers[i].problem;
  }
  const PeerInfo& first = peers.front();
  for (std::size_t i = 1; i < peers.size(); ++i) {
    const std::string both = "Rank 0 and rank " + std::to_string(i);
    if (peers[i].version != first.version) {
      return both + " have different MPI libraries (" + first.version + "; " + peers[i].version +
             "): set ALTORCH_MPI to the same one on every rank.";
    }
    if (peers[i].mode != first.mode || peers[i].job != first.job) {
      return both +
             " would start MPI in different ways: all processes of a job must be started alike, and "
             "together.";
    }
  }
  return "";
}

void check_world(const Mpi& mpi, const BootstrapOptions& options) {
  if (options.size < 0 || (mpi.size() == options.size && mpi.rank() == options.rank)) return;
  throw Error(ErrorKind::kTransport,
              "MPI takes this process for rank " + std::to_string(mpi.rank()) + " of " +
                  std::to_string(mpi.size()) + ", but it is rank " + std::to_string(options.rank) + " of " +
                  std::to_string(options.size) + " (RANK, WORLD_SIZE); " + mpi.library().version +
                  " was initialised by " + name_of(mpi.origin()) + ".");
}

std::shared_ptr<Mpi> start(const BootstrapOptions& options, const MpiLibrary& library, StartMode mode,
                           const PeerTable& table) {
  if (mode == StartMode::kRunning) return running().mpi;
  const MpiThreadLevel level = wanted_thread_level();
  if (mode == StartMode::kBootstrap) return bootstrap_mpi(library, level, options, table);
  return init_plainly(library, level,
                      mode == StartMode::kLauncher ? MpiOrigin::kLauncher : MpiOrigin::kExisting, options);
}

std::shared_ptr<Mpi> start_together(const BootstrapOptions& options) {
  const Launcher launcher = detect_launcher();
  MpiLibrary library;
  const PeerInfo own = own_info(options, launcher, library);
  PeerTable table;
  if (options.store != nullptr) {
    table = exchange_peer_info(own, options.rank, options.size, *options.store, options.job_id + "/mpi/",
                               options.timeout);
  } else {
    table.peers = {own};
    if (own.problem.empty() && own.mode == StartMode::kBootstrap) {
      throw Error(ErrorKind::kUnsupported,
                  "No launcher that " + library.version +
                      " understands has started this process, and there is no store to meet "
                      "the other ranks: use mpirun, or torchrun.");
    }
  }
  if (std::string problem = disagreement(table.peers); !problem.empty()) {
    throw Error(ErrorKind::kUnsupported, problem);
  }
  std::shared_ptr<Mpi> mpi = start(options, library, own.mode, table);
  try {
    check_world(*mpi, options);
  } catch (...) {
    if (own.mode != StartMode::kRunning) mpi->mark_broken();
    throw;
  }
  if (own.mode != StartMode::kRunning) {
    std::vector<std::string> node_keys;
    if (options.store != nullptr) {
      for (const PeerInfo& peer : table.peers) node_keys.push_back(peer.node);
    } else {
      node_keys = mpi->exchange(own.node);
    }
    mpi->set_node_of_rank(number_nodes(node_keys));
    running().mpi = mpi;
    running().job = table.job;
  }
  return mpi;
}

}  // namespace

std::shared_ptr<Mpi> start_mpi(const BootstrapOptions& options) {
  std::lock_guard guard(running().mutex);
  try {
    return start_together(options);
  } catch (const Error& error) {
    running().unsupported_reason = error.what();
    throw;
  }
}

std::shared_ptr<Mpi> running_mpi() {
  std::lock_guard guard(running().mutex);
  return running().mpi;
}

std::string describe_mpi() {
  std::lock_guard guard(running().mutex);
  const auto& mpi = running().mpi;
  if (!mpi) return "no MPI: " + running().unsupported_reason;
  return mpi->library().version + ", started by " + name_of(mpi->origin()) + ", thread level " +
         name_of(mpi->thread_level());
}

void finalize_mpi(bool after_failure, std::chrono::milliseconds timeout) {
  const std::unique_lock guard(running().mutex, std::try_to_lock);
  if (!guard || !running().mpi) return;  // another thread is starting MPI, and exit cannot wait for it
  if (after_failure) running().mpi->mark_broken();
  running().mpi->finalize(timeout);
}

}  // namespace altorch
