#include "bootstrap/bootstrap.h"

#include <mutex>

#include "bootstrap/cards.h"
#include "bootstrap/environment.h"
#include "bootstrap/launcher.h"
#include "bootstrap/process_manager.h"
#include "bootstrap/signals.h"
#include "bootstrap/starter.h"
#include "common/env.h"
#include "common/error.h"

namespace altorch {
namespace {

// How long MPI_Finalize may wait for ranks that are still busy before this process leaves without it.
constexpr std::chrono::milliseconds kFinalizePatience{10000};

struct Running {
  std::mutex mutex;
  std::shared_ptr<Mpi> mpi;
  std::string job;
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

// This rank's card, and the library if it loads. Problems become part of the card, for all ranks to see.
RankCard own_card(const BootstrapOptions& options, const Launcher& launcher, MpiLibrary& library) {
  RankCard card;
  try {
    card.node = same_node_key();
    card.memory = own_memory_probe();
    card.free_shared_memory = free_shared_memory();
    const RouteToHost route = route_to(options.master_address);
    card.address = route.address;
    card.address_is_loopback = route.is_loopback;
    if (running().mpi) {
      library = running().mpi->library();
      card.mode = StartMode::kRunning;
      card.job = running().job;
    } else {
      SignalKeeper signals;  // libucs takes SIGHUP and the fatal ones as soon as it is loaded
      ScopedEnvironment environment;
      environment.set_default("UCX_LOG_FILE", "stderr");  // the standard output is the program's
      library = load_mpi_library(options.library, options.shim_directory);
      card.mode = mode_for(library, options, launcher);
    }
    card.version = library.version;
    wanted_thread_level();
    if (card.mode == StartMode::kBootstrap) card.problem = process_manager_problem(library, options);
  } catch (const Error& error) {
    card.problem = error.what();
  }
  return card;
}

// One sentence that is the same on every rank, or empty.
std::string disagreement(const std::vector<RankCard>& cards) {
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (!cards[i].problem.empty())
      return "Rank " + std::to_string(i) + " cannot use MPI: " + cards[i].problem;
  }
  const RankCard& first = cards.front();
  for (std::size_t i = 1; i < cards.size(); ++i) {
    const std::string both = "Rank 0 and rank " + std::to_string(i);
    if (cards[i].version != first.version) {
      return both + " have different MPI libraries (" + first.version + "; " + cards[i].version +
             "): set ALTORCH_MPI to the same one on every rank.";
    }
    if (cards[i].mode != first.mode || cards[i].job != first.job) {
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
                           const CardTable& table) {
  if (mode == StartMode::kRunning) return running().mpi;
  const MpiThreadLevel level = wanted_thread_level();
  if (mode == StartMode::kBootstrap) return bootstrap_mpi(library, level, options, table);
  return init_plainly(library, level,
                      mode == StartMode::kLauncher ? MpiOrigin::kLauncher : MpiOrigin::kExisting, options);
}

}  // namespace

std::shared_ptr<Mpi> start_mpi(const BootstrapOptions& options) {
  std::lock_guard guard(running().mutex);
  const Launcher launcher = detect_launcher();
  MpiLibrary library;
  const RankCard own = own_card(options, launcher, library);
  CardTable table;
  if (options.store != nullptr) {
    table = exchange_cards(own, options.rank, options.size, *options.store, options.job_id + "/mpi/",
                           options.timeout);
  } else {
    table.cards = {own};
    if (own.problem.empty() && own.mode == StartMode::kBootstrap) {
      throw Error(ErrorKind::kUnsupported,
                  "No launcher that " + library.version +
                      " understands has started this process, and there is no store to meet "
                      "the other ranks: use mpirun, or torchrun.");
    }
  }
  if (std::string problem = disagreement(table.cards); !problem.empty()) {
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
      for (const RankCard& card : table.cards) node_keys.push_back(card.node);
    } else {
      node_keys = mpi->exchange(own.node);
    }
    mpi->set_node_of_rank(number_nodes(node_keys));
    running().mpi = mpi;
    running().job = table.job;
  }
  return mpi;
}

std::shared_ptr<Mpi> running_mpi() {
  std::lock_guard guard(running().mutex);
  return running().mpi;
}

void finalize_mpi() {
  std::shared_ptr<Mpi> mpi = running_mpi();
  if (mpi) mpi->finalize(kFinalizePatience);
}

}  // namespace altorch
