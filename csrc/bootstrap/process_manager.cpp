// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/process_manager.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "base/error.h"
#include "base/number.h"
#include "bootstrap/pmi1_server.h"
#include "bootstrap/pmix_helper.h"
#include "platform/fabric.h"

namespace altorch {
namespace {

std::string flux_library(const BootstrapOptions& options) {
  return options.shim_directory + "/libaltorch_flux.so";
}
std::string pmix_program(const BootstrapOptions& options) {
  return options.shim_directory + "/altorch-pmix-server";
}

// A number of the job for Open MPI, which wants one instead of a name. Bit 15 must be clear: Open
// MPI 4 masks it in the names of its peers, but not in its own.
std::string job_number(const std::string& job) {
  const auto random = to_number<std::uint64_t>(job.substr(job.find('-') + 1), 16);
  return std::to_string((random.value_or(0) & 0x7fff7fff) | 1);
}

// All active RDMA ports and the interface: naming only the latter would switch the former off.
std::string ucx_devices(const std::string& interface) {
  std::string devices;
  for (const std::string& port : active_rdma_ports()) devices += port + ",";
  return devices + interface;
}

// Where a relocated Open MPI, such as the one of the Python package, has its files; empty when it
// needs no telling.
std::string open_mpi_prefix(const MpiLibrary& library) {
  char real[PATH_MAX];
  if (!realpath(library.path.c_str(), real)) return "";
  const std::string path = real;
  const std::string prefix = path.substr(0, path.rfind('/', path.rfind('/') - 1));  // without lib/libmpi.so
  return prefix != "/usr" && access((prefix + "/share/openmpi").c_str(), F_OK) == 0 ? prefix : "";
}

// Bridges such as docker0 carry the same address on every node, and the libraries would try them.
void prepare_network(ScopedEnvironment& environment, const Topology& topology, bool open_mpi) {
  const std::string& interface = topology.interface;
  if (topology.uses_ofi) environment.set_default("MPIR_CVAR_CH4_NETMOD", "ofi");
  // MPICH's ofi prefers this deprecated provider to tcp, and MPI_Init hangs between nodes with
  // bridges. HPE's MPI chooses for Slingshot by itself.
  if (!has_slingshot()) environment.set_default("FI_PROVIDER", "^sockets");
  if (interface.empty()) return;
  environment.set_default("UCX_NET_DEVICES", ucx_devices(interface));
  environment.set_default("FI_TCP_IFACE", interface);
  if (!open_mpi) return;
  environment.set_default("OMPI_MCA_btl_tcp_if_include", interface);
  environment.set_default("OMPI_MCA_oob_tcp_if_include", interface);
}

// UCX takes ranks of one kernel for neighbours, and waits for memory that another user or a
// container keeps from them.
void prepare_split_host(ScopedEnvironment& environment, const Topology& topology) {
  if (topology.splits_a_host) environment.set_default("UCX_TLS", "^posix,sysv,cma,knem,xpmem");
}

// Open MPI spins in MPI_Init and MPI_Comm_create_group: with more ranks than cores each waits for
// the others' time slices.
void prepare_crowd(ScopedEnvironment& environment, const Topology& topology) {
  if (topology.more_ranks_than_cores) environment.set_default("OMPI_MCA_mpi_yield_when_idle", "1");
}

// MPICH and its relatives, and Open MPI 4 through flux/.
class Pmi1Manager : public ProcessManager {
 public:
  Pmi1Manager(const MpiLibrary& library, const BootstrapOptions& options, const Topology& topology)
      : library_(library), topology_(topology), flux_library_(flux_library(options)) {
    Pmi1Job job;
    job.rank = topology.rank;
    job.size = topology.size();
    job.name = topology.job;
    job.node_of_rank = topology.node_of_rank;
    job.key_prefix = topology.prefix + "pmi/";
    job.timeout = options.timeout;
    server_ = Pmi1Server::start(job, options.store);
  }

  void prepare(ScopedEnvironment& environment) override {
    environment.set("PMI_FD", std::to_string(server_->client_fd()));
    environment.set("PMI_RANK", std::to_string(topology_.rank));
    environment.set("PMI_SIZE", std::to_string(topology_.size()));
    const bool open_mpi = library_.family == MpiFamily::kOpenMpi;
    prepare_network(environment, topology_, open_mpi);
    prepare_split_host(environment, topology_);
    if (open_mpi) return prepare_flux(environment);
    environment.set("MPIR_CVAR_PMI_VERSION", "1");
    if (!topology_.memory_is_readable) environment.set_default("MPIR_CVAR_CH4_CMA_ENABLE", "0");
  }

  void detach_store() override { server_->detach_store(); }

 private:
  void prepare_flux(ScopedEnvironment& environment) {
    environment.set("FLUX_JOB_ID", job_number(topology_.job));
    environment.set("FLUX_PMI_LIBRARY_PATH", flux_library_);
    environment.set("OMPI_MCA_pmix", "flux");
    // Otherwise it looks up a remote rank at the first message to it, when the store is no longer
    // asked.
    environment.set("OMPI_MCA_mpi_add_procs_cutoff", "2147483647");
    if (!topology_.memory_is_readable) {
      environment.set_default("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    }
    prepare_crowd(environment, topology_);
  }

  MpiLibrary library_;
  Topology topology_;
  std::string flux_library_;
  std::shared_ptr<Pmi1Server> server_;
};

// Open MPI 5 and later.
class PmixManager : public ProcessManager {
 public:
  PmixManager(const MpiLibrary& library, const BootstrapOptions& options, const Topology& topology)
      : topology_(topology) {
    PmixOptions pmix;
    pmix.program = pmix_program(options);
    pmix.pmix_library = loaded_pmix_library();
    pmix.mpi_prefix = open_mpi_prefix(library);
    pmix.job = topology.job;
    pmix.rank = topology.rank;
    pmix.node_of_rank = topology.node_of_rank;
    for (const PeerInfo& peer : topology.peers) pmix.process_of_rank.push_back(peer.memory.process);
    pmix.key_prefix = topology.prefix + "pmix/";
    pmix.timeout = options.timeout;
    helper_ = PmixHelper::start(pmix, options.store);
  }

  void prepare(ScopedEnvironment& environment) override {
    for (const std::string& entry : helper_->environment()) {
      const std::size_t equals = entry.find('=');
      if (equals != std::string::npos) environment.set(entry.substr(0, equals), entry.substr(equals + 1));
    }
    prepare_network(environment, topology_, /*open_mpi=*/true);
    prepare_split_host(environment, topology_);
    // Without it, Open MPI ends this process with exit code 14 when a peer's connection breaks.
    // With it, Open MPI 5 takes neither UCX nor libfabric's matching (its file ft-mpi says
    // pml=ob1), so that InfiniBand, RoCE, EFA and Slingshot would lie idle. Ranks must choose
    // alike.
    if (!topology_.has_fast_network) environment.set_default("OMPI_MCA_mpi_ft_enable", "1");
    if (!topology_.memory_is_readable) environment.set_default("OMPI_MCA_smsc", "^cma");
    prepare_crowd(environment, topology_);
  }

  void detach_store() override { helper_->detach_store(); }

 private:
  Topology topology_;
  std::shared_ptr<PmixHelper> helper_;
};

bool needs_pmix(const MpiLibrary& library) {
  return library.family == MpiFamily::kOpenMpi && library.major >= 5;
}

}  // namespace

std::unique_ptr<ProcessManager> start_process_manager(const MpiLibrary& library,
                                                      const BootstrapOptions& options,
                                                      const Topology& topology) {
  if (needs_pmix(library)) return std::make_unique<PmixManager>(library, options, topology);
  return std::make_unique<Pmi1Manager>(library, options, topology);
}

std::string process_manager_problem(const MpiLibrary& library, const BootstrapOptions& options) {
  if (library.family != MpiFamily::kOpenMpi) return "";
  if (!needs_pmix(library)) {
    if (access(flux_library(options).c_str(), R_OK) == 0) return "";
    return library.version + " needs " + flux_library(options) + ", which is missing: install altorch again.";
  }
  if (access(pmix_program(options).c_str(), X_OK) != 0) {
    return library.version + " can only be started by its mpirun here, for altorch was built without " +
           "altorch-pmix-server. Install libpmix-dev and build altorch again, or use the Python package "
           "mpich.";
  }
  if (loaded_pmix_library().empty()) {
    return library.version + " shows no PMIx library, so that it can only be started by its mpirun.";
  }
  return "";
}

void prepare_open_mpi(ScopedEnvironment& environment, const MpiLibrary& library) {
  if (library.family != MpiFamily::kOpenMpi) return;
  environment.set_default("UCX_LOG_FILE", "stderr");  // Open MPI 4 loads UCX in MPI_Init only
  const std::string prefix = open_mpi_prefix(library);
  if (!prefix.empty()) environment.set_default("OPAL_PREFIX", prefix);
  // The search for libfabric's networks takes Open MPI 5 a second.
  if (library.major < 5 || has_fast_network()) return;
  environment.set_default("OMPI_MCA_btl", "^ofi");
  environment.set_default("OMPI_MCA_mtl", "^ofi");
}

}  // namespace altorch
