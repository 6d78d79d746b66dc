// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/pmix_server/job.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <sstream>
#include <stdexcept>

namespace altorch {
namespace {

// PMIx answers some calls through a callback from its own thread.
struct Answer {
  std::mutex mutex;
  std::condition_variable came;
  bool done = false;
  pmix_status_t status = PMIX_SUCCESS;

  static void callback(pmix_status_t status, void* data) {
    auto* self = static_cast<Answer*>(data);
    std::lock_guard guard(self->mutex);
    self->status = status;
    self->done = true;
    self->came.notify_one();
  }
  pmix_status_t wait() {
    std::unique_lock lock(mutex);
    came.wait(lock, [this] { return done; });
    return status;
  }
};

void check(const PmixLibrary& pmix, const char* what, pmix_status_t status) {
  if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) {
    throw std::runtime_error(std::string(what) + ": " + pmix.error_string(status));
  }
}

template <typename Call>
void call_and_wait(const PmixLibrary& pmix, const char* what, Call call) {
  Answer answer;
  pmix_status_t status = call(Answer::callback, &answer);
  if (status == PMIX_SUCCESS) status = answer.wait();
  check(pmix, what, status);
}

std::string join(const std::vector<int>& numbers) {
  std::string text;
  for (int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

pmix_proc_t process_of(const PmixJob& job, int rank) {
  pmix_proc_t process;
  std::memset(&process, 0, sizeof(process));
  std::strncpy(process.nspace, job.name.c_str(), PMIX_MAX_NSLEN);
  process.rank = static_cast<pmix_rank_t>(rank);
  return process;
}

void add_maps(const PmixLibrary& pmix, const PmixJob& job, InfoList& info) {
  std::string names, ranks;
  for (int node = 0; node < job.node_count(); ++node) {
    names += (node == 0 ? "" : ",") + node_name(node);
    ranks += (node == 0 ? "" : ";") + join(job.ranks_of(node));
  }
  char* encoded = nullptr;
  check(pmix, "PMIx_generate_regex", pmix.generate_regex(names.c_str(), &encoded));
  info.add(PMIX_NODE_MAP, encoded);
  check(pmix, "PMIx_generate_ppn", pmix.generate_ppn(ranks.c_str(), &encoded));
  info.add(PMIX_PROC_MAP, encoded);
}

void add_rank_data(const PmixJob& job, int rank, InfoList& info) {
  const int node = job.node_of_rank[static_cast<std::size_t>(rank)];
  const std::vector<int> mates = job.ranks_of(node);
  const auto place = std::find(mates.begin(), mates.end(), rank) - mates.begin();
  info.add_rank(PMIX_RANK, static_cast<pmix_rank_t>(rank));
  info.add_rank(PMIX_GLOBAL_RANK, static_cast<pmix_rank_t>(rank));
  info.add_rank(PMIX_APP_RANK, static_cast<pmix_rank_t>(rank));
  info.add(PMIX_APPNUM, 0u);
  info.add(PMIX_NODEID, static_cast<std::uint32_t>(node));
  info.add(PMIX_HOSTNAME, node_name(node));
  InfoList* places = &info;
  // 16-bit numbers in PMIx.
  for (const char* key : {PMIX_LOCAL_RANK, PMIX_NODE_RANK}) {
    places->add(key, static_cast<std::uint32_t>(place));
    pmix_info_t& last = places->data()[places->size() - 1];
    last.value.type = PMIX_UINT16;
    last.value.data.uint16 = static_cast<std::uint16_t>(place);
  }
}

}  // namespace

int PmixJob::node_count() const { return *std::max_element(node_of_rank.begin(), node_of_rank.end()) + 1; }

std::vector<int> PmixJob::ranks_of(int node) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (node_of_rank[static_cast<std::size_t>(rank)] == node) ranks.push_back(rank);
  }
  return ranks;
}

std::string node_name(int node) { return "altorch" + std::to_string(node); }

PmixJob parse_job(const std::string& text) {
  PmixJob job;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.find(' ');
    const std::string key = line.substr(0, space);
    const std::string value = space == std::string::npos ? "" : line.substr(space + 1);
    std::istringstream numbers(value);
    if (key == "pmix") job.pmix_library = value;
    if (key == "name") job.name = value;
    if (key == "directory") job.directory = value;
    if (key == "node") job.node = std::stoi(value);
    if (key == "nodes") {
      for (int number; numbers >> number;) job.node_of_rank.push_back(number);
    }
    if (key == "processes") {
      for (pid_t process; numbers >> process;) job.local_processes.push_back(process);
    }
  }
  const auto is_wrong = [&](int node) { return node < 0 || node >= job.size(); };
  if (std::any_of(job.node_of_rank.begin(), job.node_of_rank.end(), is_wrong) ||
      job.ranks_of(job.node).empty())
    throw std::runtime_error("a configuration without ranks on node " + std::to_string(job.node));
  return job;
}

void register_job(const PmixLibrary& pmix, const PmixJob& job) {
  // PMIx reads these from a thread of its own, so they stay.
  auto& info = *new InfoList;
  const auto size = static_cast<std::uint32_t>(job.size());
  const std::vector<int> local = job.ranks_of(job.node);
  info.add(PMIX_JOBID, job.name);
  info.add(PMIX_UNIV_SIZE, size);
  info.add(PMIX_JOB_SIZE, size);
  info.add(PMIX_MAX_PROCS, size);
  info.add(PMIX_JOB_NUM_APPS, 1u);
  info.add(PMIX_NUM_NODES, static_cast<std::uint32_t>(job.node_count()));
  info.add(PMIX_APPNUM, 0u);
  info.add(PMIX_NODEID, static_cast<std::uint32_t>(job.node));
  info.add(PMIX_NODE_SIZE, static_cast<std::uint32_t>(local.size()));
  info.add(PMIX_LOCAL_SIZE, static_cast<std::uint32_t>(local.size()));
  info.add(PMIX_LOCAL_PEERS, join(local));
  info.add_rank(PMIX_LOCALLDR, static_cast<pmix_rank_t>(local.front()));
  info.add(PMIX_TMPDIR, job.directory);
  info.add(PMIX_NSDIR, job.directory);
  info.add_flag(PMIX_TDIR_RMCLEAN, true);
  add_maps(pmix, job, info);
  for (int rank = 0; rank < job.size(); ++rank) {
    auto& of_rank = *new InfoList;
    add_rank_data(job, rank, of_rank);
    info.add_list(PMIX_PROC_DATA, of_rank);
  }
  call_and_wait(pmix, "PMIx_server_register_nspace", [&](pmix_op_cbfunc_t callback, void* data) {
    return pmix.register_nspace(job.name.c_str(), static_cast<int>(local.size()), info.data(), info.size(),
                                callback, data);
  });
  for (int rank : local) {
    const pmix_proc_t process = process_of(job, rank);
    call_and_wait(pmix, "PMIx_server_register_client", [&](pmix_op_cbfunc_t callback, void* data) {
      return pmix.register_client(&process, geteuid(), getegid(), nullptr, callback, data);
    });
  }
}

std::string environment_of(const PmixLibrary& pmix, const PmixJob& job, int rank) {
  const pmix_proc_t process = process_of(job, rank);
  char** environment = nullptr;
  check(pmix, "PMIx_server_setup_fork", pmix.setup_fork(&process, &environment));
  std::string text;
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry)
    text += std::string(*entry) + "\n";
  return text;
}

}  // namespace altorch
