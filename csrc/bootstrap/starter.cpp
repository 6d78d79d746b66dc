#include "bootstrap/starter.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "bootstrap/environment.h"
#include "bootstrap/init_deadline.h"
#include "bootstrap/pmi1_server.h"
#include "bootstrap/signals.h"
#include "common/error.h"

namespace altorch {
namespace {

// Shared memory that one rank takes of /dev/shm: 5.3 MB with MPICH 5, 4 MB and some with Open MPI 4.
constexpr std::uint64_t kSharedMemoryPerRank = 6'000'000;

std::string flux_library(const BootstrapOptions& options) {
  return options.shim_directory + "/libaltorch_flux.so";
}

// A number of the job for Open MPI, which wants one instead of a name. Bit 15 must be clear: Open MPI 4 masks
// it in the names of its peers, but not in its own.
std::string job_number(const std::string& job) {
  const std::uint64_t random = std::stoull(job.substr(job.find('-') + 1), nullptr, 16);
  return std::to_string((random & 0x7fff7fff) | 1);
}

// The same verdict on every rank, for all look at the same cards.
void check_shared_memory(const std::vector<RankCard>& cards, const std::vector<int>& nodes) {
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const auto ranks = static_cast<std::uint64_t>(std::count(nodes.begin(), nodes.end(), nodes[i]));
    if (ranks == 1 || cards[i].free_shared_memory >= ranks * kSharedMemoryPerRank) continue;
    throw Error(
        ErrorKind::kUnsupported,
        "/dev/shm on the node of rank " + std::to_string(i) + " has " +
            std::to_string(cards[i].free_shared_memory / 1'000'000) + " MB free, and MPI needs " +
            std::to_string(ranks * kSharedMemoryPerRank / 1'000'000) + " MB for the " +
            std::to_string(ranks) +
            " ranks there, or dies of SIGBUS. Free some, or make it larger (docker run --shm-size=1g).");
  }
}

// Each rank tries the next one of its node; together they try all that matters, for the rules are the same
// for all.
bool neighbour_is_readable(const std::vector<RankCard>& cards, const std::vector<int>& nodes, int rank) {
  const int size = static_cast<int>(cards.size());
  for (int step = 1; step < size; ++step) {
    const auto other = static_cast<std::size_t>((rank + step) % size);
    if (nodes[other] == nodes[static_cast<std::size_t>(rank)]) return can_read_memory(cards[other].memory);
  }
  return true;
}

bool has_more_ranks_than_cores(const std::vector<int>& nodes, int rank) {
  cpu_set_t cores;
  const int usable = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(rank)]) > usable;
}

// The interface that reaches the other nodes. On the master's own node the route to the master is the
// loopback, so a rank there looks towards somebody else.
std::string outward_interface(const std::vector<RankCard>& cards, const std::vector<int>& nodes, int rank,
                              const std::string& master) {
  RouteToHost route = route_to(master);
  for (std::size_t i = 0; i < cards.size() && (route.interface.empty() || route.is_loopback); ++i) {
    if (nodes[i] != nodes[static_cast<std::size_t>(rank)] && !cards[i].address_is_loopback) {
      route = route_to(cards[i].address);
    }
  }
  return route.is_loopback ? "" : route.interface;
}

// All InfiniBand devices and the interface: naming only the latter would switch the former off.
std::string ucx_devices(const std::string& interface) {
  std::string devices;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", ignored)) {
    devices += entry.path().filename().string() + ":1,";
  }
  return devices + interface;
}

void prepare_network(ScopedEnvironment& environment, const MpiLibrary& library,
                     const std::string& interface) {
  if (interface.empty()) return;
  // Bridges such as docker0 carry the same address on every node, and the libraries would try them.
  environment.set_default("UCX_NET_DEVICES", ucx_devices(interface));
  environment.set_default("FI_TCP_IFACE", interface);
  if (library.family == MpiFamily::kOpenMpi) {
    environment.set_default("OMPI_MCA_btl_tcp_if_include", interface);
    environment.set_default("OMPI_MCA_oob_tcp_if_include", interface);
  }
}

void prepare_mpich(ScopedEnvironment& environment, bool memory_is_readable) {
  environment.set("MPIR_CVAR_PMI_VERSION", "1");
  if (!memory_is_readable) environment.set_default("MPIR_CVAR_CH4_CMA_ENABLE", "0");
}

void prepare_open_mpi_4(ScopedEnvironment& environment, const BootstrapOptions& options,
                        const std::string& job, bool memory_is_readable, bool crowded) {
  environment.set("FLUX_JOB_ID", job_number(job));
  environment.set("FLUX_PMI_LIBRARY_PATH", flux_library(options));
  environment.set("OMPI_MCA_pmix", "flux");
  // Otherwise it looks up a remote rank at the first message to it, when the store is no longer asked.
  environment.set("OMPI_MCA_mpi_add_procs_cutoff", "2147483647");
  if (!memory_is_readable) environment.set_default("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
  // Open MPI spins in MPI_Init and MPI_Comm_create_group: with more ranks than cores each waits for the
  // others' time slices.
  if (crowded) environment.set_default("OMPI_MCA_mpi_yield_when_idle", "1");
}

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

std::string bootstrap_problem(const MpiLibrary& library, const BootstrapOptions& options) {
  if (library.family != MpiFamily::kOpenMpi) return "";
  if (library.major >= 5) {
    return library.version +
           " cannot be started without mpirun yet. Use the mpich package, or start with mpirun.";
  }
  if (access(flux_library(options).c_str(), R_OK) != 0) {
    return library.version + " needs " + flux_library(options) + ", which is missing: install altorch again.";
  }
  return "";
}

std::shared_ptr<Mpi> init_plainly(const MpiLibrary& library, MpiThreadLevel level, MpiOrigin origin,
                                  const BootstrapOptions& options) {
  SignalKeeper signals;
  InitDeadline deadline(options.timeout);
  return Mpi::initialise(library, level, origin);
}

std::shared_ptr<Mpi> bootstrap_mpi(const MpiLibrary& library, MpiThreadLevel level,
                                   const BootstrapOptions& options, const CardTable& table) {
  std::vector<std::string> node_keys;
  for (const RankCard& card : table.cards) node_keys.push_back(card.node);
  const std::vector<int> nodes = number_nodes(node_keys);
  const int node_count = *std::max_element(nodes.begin(), nodes.end()) + 1;
  check_shared_memory(table.cards, nodes);
  const std::string prefix = options.job_id + "/" + table.job + "/";
  // Also the last meeting before MPI_Init: nobody enters it alone.
  const bool readable = all_agree(neighbour_is_readable(table.cards, nodes, options.rank), options.size,
                                  *options.store, prefix + "memory", options.timeout);

  Pmi1Job job;
  job.rank = options.rank;
  job.size = options.size;
  job.name = table.job;
  job.node_of_rank = nodes;
  job.key_prefix = prefix + "pmi/";
  job.timeout = options.timeout;
  std::shared_ptr<Pmi1Server> server = Pmi1Server::start(job, options.store);

  std::shared_ptr<Mpi> mpi;
  {
    ScopedEnvironment environment;
    environment.scrub_launcher_variables();
    environment.set("PMI_FD", std::to_string(server->client_fd()));
    environment.set("PMI_RANK", std::to_string(options.rank));
    environment.set("PMI_SIZE", std::to_string(options.size));
    if (node_count > 1) {
      prepare_network(environment, library,
                      outward_interface(table.cards, nodes, options.rank, options.master_address));
    }
    if (library.family == MpiFamily::kOpenMpi) {
      prepare_open_mpi_4(environment, options, table.job, readable,
                         has_more_ranks_than_cores(nodes, options.rank));
    } else {
      prepare_mpich(environment, readable);
    }
    SignalKeeper signals;
    InitDeadline deadline(options.timeout);
    try {
      mpi = Mpi::initialise(library, level, MpiOrigin::kBootstrap);
    } catch (...) {
      server->detach_store();
      throw;
    }
  }
  server->detach_store();
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
