// What one process has once, whatever its groups: MPI, and the watch over the job's other processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "common/key_value_store.h"
#include "engine/communicator.h"
#include "observe/job_watch.h"

namespace altorch::backend {

struct JobSettings {
  std::string mpi_library;  // path
  std::string shim_directory;
  std::string job_id;  // the same on all ranks, new for every start of the job
  std::string master_address;
};

// Called for the first group of a job (all its ranks), and again for the new first group after
// destroy_process_group. The caller keeps the result until its group is made. Throws Error.
std::shared_ptr<JobWatch> watch_job(const std::shared_ptr<KeyValueStore>& store, int rank, int size,
                                    std::chrono::milliseconds timeout);
// The watch of the last watch_job, while a group owns it; null when the job's first group was another
// backend's.
std::shared_ptr<JobWatch> current_watch();

// Called for the first group of a job, before join_group: starts MPI. When it is called again MPI is used as
// it is. Throws Error.
void start_job_mpi(const JobSettings& settings, const std::shared_ptr<KeyValueStore>& store, int rank,
                   int size, std::chrono::milliseconds timeout);

struct GroupSettings {
  std::string name;
  std::string key_prefix;  // of the group's keys in the store, unique within the job
  int rank = 0;
  int size = 1;
  std::vector<int> job_ranks;  // of the members, as numbered by the job's first group
  std::chrono::milliseconds timeout{0};
};

// Collective over the group: all members meet in the store, then make a communicator. Throws Error.
std::shared_ptr<Communicator> join_group(const GroupSettings& settings,
                                         const std::shared_ptr<KeyValueStore>& store);

// At exit: lets MPI go, if that is safe.
void finalize_job();

// One line for `altorch info`: the MPI in use, or why there is none.
std::string describe_job();

}  // namespace altorch::backend
