// SPDX-License-Identifier: BSD-3-Clause
// altorch-pmix-server <fd>: hosts the PMIx server of one node for Open MPI 5 and later, in a job
// that no mpirun has started. The first rank of the node starts it and stays at the other end of
// the socket <fd> (frames.h), through which the nodes' servers exchange the data of a fence. It
// ends when all ranks of the node have ended, however they end.
#include <ftw.h>
#include <pmix_server.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "bootstrap/frames.h"
#include "bootstrap/pmix_server/job.h"
#include "bootstrap/pmix_server/pmix_library.h"

namespace altorch {
namespace {

struct Fence {
  pmix_modex_cbfunc_t callback = nullptr;
  void* data = nullptr;
};

// What PMIx's thread and the main thread share.
struct State {
  std::mutex mutex;
  int fd = -1;
  std::uint32_t fences = 0;
  std::map<std::uint32_t, Fence> open;
};
State& shared() {
  static State* instance = new State;
  return *instance;
}

// PMIx hands us its data and wants the nodes' data back, and tells when it has read them.
void finish_fence(const Fence& fence, pmix_status_t status, const std::string& all) {
  char* copy = static_cast<char*>(std::malloc(all.size() + 1));
  std::memcpy(copy, all.data(), all.size());
  fence.callback(status, copy, all.size(), fence.data, std::free, copy);
}

pmix_status_t fence_nb(const pmix_proc_t*, std::size_t, const pmix_info_t*, std::size_t, char* data,
                       std::size_t size, pmix_modex_cbfunc_t callback, void* callback_data) {
  State& self = shared();
  std::lock_guard guard(self.mutex);
  const std::uint32_t number = self.fences++;
  self.open[number] = {callback, callback_data};
  const std::string body(data != nullptr ? data : "", data != nullptr ? size : 0);
  if (!send_frame(self.fd, 'F', with_number(number, body))) {
    // The first rank has left: it does so after a barrier, so that there is nothing more to learn
    // from other nodes.
    self.open.erase(number);
    return PMIX_OPERATION_SUCCEEDED;
  }
  return PMIX_SUCCESS;
}

pmix_status_t client_connected(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}
pmix_status_t client_finalized(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;
}

// A fence has brought everything that there is of other nodes.
pmix_status_t direct_modex(const pmix_proc_t*, const pmix_info_t*, std::size_t, pmix_modex_cbfunc_t, void*) {
  return PMIX_ERR_NOT_FOUND;
}

pmix_status_t abort_job(const pmix_proc_t*, void*, int, const char*, pmix_proc_t*, std::size_t,
                        pmix_op_cbfunc_t, void*) {
  return PMIX_OPERATION_SUCCEEDED;  // the process that asks ends itself
}

pmix_server_module_t* server_module() {
  // Later versions of PMIx read more functions than this header knows: there they must find zeros.
  static union {
    pmix_server_module_t module;
    char room[4096];
  } space;
  std::memset(&space, 0, sizeof(space));
  space.module.client_connected = client_connected;
  space.module.client_finalized = client_finalized;
  space.module.abort = abort_job;
  space.module.fence_nb = fence_nb;
  space.module.direct_modex = direct_modex;
  return &space.module;
}

void start_server(const PmixLibrary& pmix, const PmixJob& job) {
  auto& info = *new InfoList;
  info.add(PMIX_HOSTNAME, node_name(job.node));
  info.add(PMIX_SERVER_NSPACE, job.name + "-server");
  info.add_rank(PMIX_SERVER_RANK, static_cast<pmix_rank_t>(job.node));
  info.add(PMIX_SERVER_TMPDIR, job.directory);
  const pmix_status_t status = pmix.server_init(server_module(), info.data(), info.size());
  if (status != PMIX_SUCCESS)
    throw std::runtime_error(std::string("PMIx_server_init: ") + pmix.error_string(status));
}

bool lives(pid_t process) { return kill(process, 0) == 0 || errno == EPERM; }

// Answers fences until the socket closes.
void serve(int fd) {
  while (auto frame = receive_frame(fd)) {
    const auto body = frame->kind == 'D' ? numbered_body(*frame) : std::nullopt;
    if (!body) continue;
    Fence fence;
    {
      std::lock_guard guard(shared().mutex);
      auto found = shared().open.find(body->number);
      if (found == shared().open.end()) continue;
      fence = found->second;
      shared().open.erase(found);
    }
    finish_fence(fence, PMIX_SUCCESS, body->data);
  }
  std::lock_guard guard(shared().mutex);
  for (const auto& [number, fence] : shared().open) finish_fence(fence, PMIX_SUCCESS, "");
  shared().open.clear();
}

int run(int fd) {
  std::string directory;
  try {
    const auto frame = receive_frame(fd);
    if (!frame || frame->kind != 'C') return 1;
    const PmixJob job = parse_job(frame->body);
    directory = job.directory;
    mkdir(directory.c_str(), 0700);
    const PmixLibrary pmix = load_pmix(job.pmix_library);
    shared().fd = fd;
    start_server(pmix, job);
    register_job(pmix, job);
    for (int rank : job.ranks_of(job.node)) {
      send_frame(fd, 'E', std::to_string(rank) + "\n" + environment_of(pmix, job, rank));
    }
    send_frame(fd, 'R', "");
    serve(fd);
    // The others may still use MPI, and would take the end of their server for the end of the job.
    const auto& ranks = job.local_processes;
    while (std::any_of(ranks.begin(), ranks.end(), lives)) usleep(100'000);
  } catch (const std::exception& error) {
    send_frame(fd, 'X', error.what());
  }
  const auto remove_one = [](const char* path, const struct stat*, int, FTW*) { return remove(path); };
  if (!directory.empty()) nftw(directory.c_str(), remove_one, 16, FTW_DEPTH | FTW_PHYS);
  // PMIx_server_finalize is left out: no rank of the node is left, and it would wait for its
  // threads.
  _exit(0);
}

}  // namespace
}  // namespace altorch

int main(int count, char** words) {
  if (count != 2) return 2;
  // The server belongs to no terminal, and is not a child of the rank that starts it: a program
  // that waits for its children must not find this one.
  if (fork() != 0) _exit(0);
  setsid();
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  return altorch::run(std::atoi(words[1]));
}
