#include "backend/process.h"

#include <algorithm>
#include <mutex>

#include "common/env.h"
#include "transports/loopback/channel.h"

namespace altorch::backend {
namespace {

struct Job {
  std::mutex mutex;
  std::shared_ptr<Mpi> mpi;
  std::string no_mpi_reason = "no group was made yet";
};

Job& job() {
  static auto* instance = new Job();  // MPI is let go by finalize_job, never by a destructor
  return *instance;
}

std::int64_t group_tag(const std::string& name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash % 32768;
}

}  // namespace

std::chrono::milliseconds bootstrap_patience(std::chrono::milliseconds timeout) {
  const double seconds = numeric_setting("ALTORCH_BOOTSTRAP_SECONDS");
  return std::min(timeout, std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds)));
}

void start_job_mpi(const JobSettings& settings, Rendezvous& group) {
  Job& current = job();
  const std::lock_guard lock(current.mutex);
  if (current.mpi && current.mpi->usable()) return;  // started for an earlier group
  const auto patience = bootstrap_patience(group.settings().timeout);
  // MPI's own questions are asked once.
  C10dStore keys(group.c10d(), group.settings().key_prefix, patience);
  WatchedStore store(keys, group.watch(), group.settings().job_ranks);
  BootstrapOptions options;
  options.library = settings.mpi_library;
  options.shim_directory = settings.shim_directory;
  options.rank = group.settings().rank;
  options.size = group.settings().size;
  options.store = &store;
  options.job_id = settings.job_id;
  options.master_address = settings.master_address;
  options.timeout = patience;
  try {
    current.mpi = start_mpi(options);
  } catch (const Error& error) {
    current.no_mpi_reason = error.what();
    throw;
  }
}

std::shared_ptr<Communicator> join_group(Rendezvous& group) {
  const GroupSettings& settings = group.settings();
  Membership made{settings.name, settings.job_ranks, group.store(), group.watch()};
  if (settings.size == 1) {  // which needs no transport
    return std::make_shared<Communicator>(
        std::move(made), std::make_unique<MessageLinks>("self", std::move(make_loopback_channels(1)[0])));
  }
  std::shared_ptr<Mpi> mpi;
  {
    Job& current = job();
    const std::lock_guard lock(current.mutex);
    if (!current.mpi) throw Error(ErrorKind::kUnsupported, "MPI was not started: " + current.no_mpi_reason);
    mpi = current.mpi;
  }
  const GroupCreation creation{settings.name, settings.timeout, [&] { group.watched().attend(); }};
  auto links = mpi->create_group(settings.mpi_ranks, group_tag(settings.name), creation);
  return std::make_shared<Communicator>(std::move(made), std::move(links));
}

void finalize_job(bool after_failure) {
  Job& current = job();
  const std::unique_lock lock(current.mutex, std::try_to_lock);
  if (!lock || !current.mpi) return;  // another thread is starting MPI: it cannot be waited for
  if (after_failure) current.mpi->mark_broken();
  current.mpi->finalize(std::chrono::milliseconds(2000));
}

std::string describe_job() {
  Job& current = job();
  const std::lock_guard lock(current.mutex);
  if (!current.mpi) return "no MPI: " + current.no_mpi_reason;
  return current.mpi->library().version + ", started by " + name_of(current.mpi->origin()) +
         ", thread level " + name_of(current.mpi->thread_level());
}

}  // namespace altorch::backend
