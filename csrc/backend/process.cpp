#include "backend/process.h"

#include <algorithm>
#include <mutex>

#include "common/env.h"
#include "common/meeting.h"
#include "transports/loopback/channel.h"

namespace altorch::backend {
namespace {

struct Job {
  std::mutex mutex;
  std::shared_ptr<Mpi> mpi;
  std::string no_mpi_reason = "no group was made yet";
  std::weak_ptr<JobWatch> watch;
};

Job& job() {
  static auto* instance = new Job();  // MPI is let go by finalize_job, never by a destructor
  return *instance;
}

class MpiLinks : public Links {
 public:
  explicit MpiLinks(std::unique_ptr<MpiGroup> group) : group_(std::move(group)) {}
  const char* transport() const override { return "mpi"; }
  Channel& channel() override { return group_->channel(); }
  WholeCollectives* collectives() override { return &group_->collectives(); }
  void mark_broken() override { group_->mark_broken(); }

 private:
  std::unique_ptr<MpiGroup> group_;
};

// A group of one needs no transport.
class SelfLinks : public Links {
 public:
  SelfLinks() : channel_(std::move(make_loopback_channels(1)[0])) {}
  const char* transport() const override { return "self"; }
  Channel& channel() override { return *channel_; }
  WholeCollectives* collectives() override { return nullptr; }
  void mark_broken() override {}

 private:
  std::unique_ptr<Channel> channel_;
};

std::chrono::milliseconds bootstrap_patience(std::chrono::milliseconds timeout) {
  const double seconds = numeric_setting("ALTORCH_BOOTSTRAP_SECONDS");
  return std::min(timeout, std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds)));
}

std::int64_t group_tag(const std::string& name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash % 32768;
}

}  // namespace

std::shared_ptr<JobWatch> watch_job(const std::shared_ptr<KeyValueStore>& store, int rank, int size,
                                    std::chrono::milliseconds timeout) {
  auto watch = std::make_shared<JobWatch>(store, rank, size, bootstrap_patience(timeout));
  Job& current = job();
  const std::lock_guard lock(current.mutex);
  current.watch = watch;
  return watch;
}

std::shared_ptr<JobWatch> current_watch() {
  Job& current = job();
  const std::lock_guard lock(current.mutex);
  return current.watch.lock();
}

void start_job_mpi(const JobSettings& settings, const std::shared_ptr<KeyValueStore>& store, int rank,
                   int size, std::chrono::milliseconds timeout) {
  Job& current = job();
  const std::lock_guard lock(current.mutex);
  if (current.mpi && current.mpi->usable()) return;  // started for an earlier group
  BootstrapOptions options;
  options.library = settings.mpi_library;
  options.shim_directory = settings.shim_directory;
  options.rank = rank;
  options.size = size;
  options.store = store.get();
  options.job_id = settings.job_id;
  options.master_address = settings.master_address;
  options.timeout = bootstrap_patience(timeout);
  try {
    current.mpi = start_mpi(options);
  } catch (const Error& error) {
    current.no_mpi_reason = error.what();
    throw;
  }
}

std::shared_ptr<Communicator> join_group(const GroupSettings& settings,
                                         const std::shared_ptr<KeyValueStore>& store) {
  Job& current = job();
  const std::lock_guard lock(current.mutex);
  CommunicatorSettings made{settings.name, settings.job_ranks, store, current.watch.lock()};
  if (settings.size == 1)
    return std::make_shared<Communicator>(std::move(made), std::make_unique<SelfLinks>());
  if (!current.mpi) throw Error(ErrorKind::kUnsupported, "MPI was not started: " + current.no_mpi_reason);

  // Making a communicator blocks inside MPI, so nobody begins before everybody is there.
  meet(*store, "here", settings.rank, settings.size, settings.timeout,
       "to make group '" + settings.name + "'");
  auto group = current.mpi->create_group(settings.job_ranks, group_tag(settings.name));
  return std::make_shared<Communicator>(std::move(made), std::make_unique<MpiLinks>(std::move(group)));
}

void finalize_job() {
  Job& current = job();
  const std::lock_guard lock(current.mutex);
  if (current.mpi) current.mpi->finalize(std::chrono::milliseconds(2000));
}

std::string describe_job() {
  Job& current = job();
  const std::lock_guard lock(current.mutex);
  if (!current.mpi) return "no MPI: " + current.no_mpi_reason;
  return current.mpi->library().version + ", started by " + name_of(current.mpi->origin()) +
         ", thread level " + name_of(current.mpi->thread_level());
}

}  // namespace altorch::backend
