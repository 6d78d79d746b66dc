// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/pmix_helper.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/environment.h"
#include "bootstrap/frames.h"
#include "platform/native_thread.h"
#include "rendezvous/store_allgather.h"

namespace altorch {
namespace {

// The helper's end of the socket; the usual place after standard error.
constexpr int kHelperFd = 3;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The program's own environment without the identity that another launcher left.
std::vector<std::string> helper_environment(const std::string& mpi_prefix) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (!is_launcher_variable(name)) entries.emplace_back(*entry);
  }
  if (!mpi_prefix.empty()) {
    for (const char* name : {"OPAL_PREFIX", "PMIX_PREFIX"}) {
      if (std::getenv(name) == nullptr) entries.push_back(std::string(name) + "=" + mpi_prefix);
    }
  }
  return entries;
}

std::string temporary_directory(const std::string& job) {
  const char* base = std::getenv("TMPDIR");
  return std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/" + job;
}

// 0: none.
void set_receive_timeout(int fd, std::chrono::milliseconds timeout) {
  const timeval limit = {timeout.count() / 1000, (timeout.count() % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

template <typename Numbers>
std::string join(const Numbers& numbers) {
  std::string text;
  for (auto number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

}  // namespace

std::string loaded_pmix_library() {
  Dl_info info;
  void* function = dlsym(RTLD_DEFAULT, "PMIx_Init");
  return function != nullptr && dladdr(function, &info) != 0 ? info.dli_fname : "";
}

std::shared_ptr<PmixHelper> PmixHelper::start(const PmixOptions& options, KeyValueStore* store) {
  std::shared_ptr<PmixHelper> helper(new PmixHelper(options, store));
  const auto& nodes = options.node_of_rank;
  const auto first = std::find(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(options.rank)]);
  const std::string own_key = options.key_prefix + "environment/" + std::to_string(options.rank);
  if (first - nodes.begin() == options.rank) {
    std::string problem;
    try {
      helper->launch();
      helper->publish_environments();
      start_native_thread("altorch-pmix", [helper] { helper->serve(); });
    } catch (const Error& error) {
      problem = error.what();
    }
    if (!problem.empty()) {
      // The ranks of this node wait for their environment.
      for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
        if (nodes[rank] == *first)
          store->set(options.key_prefix + "environment/" + std::to_string(rank), "!" + problem);
      }
    }
  }
  const std::string text = store->get(own_key, options.timeout);
  if (text.starts_with("!")) throw Error(ErrorKind::kUnsupported, text.substr(1));
  helper->environment_ = lines_of(text);
  return helper;
}

void PmixHelper::launch() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(ErrorKind::kTransport,
                std::string("No socket for the PMIx helper: ") + std::strerror(errno) + ".");
  }
  fd_ = ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kHelperFd);
  const std::vector<std::string> entries = helper_environment(options_.mpi_prefix);
  std::vector<char*> environment;
  for (const std::string& entry : entries) environment.push_back(const_cast<char*>(entry.c_str()));
  environment.push_back(nullptr);
  const std::string number = std::to_string(kHelperFd);
  char* arguments[] = {options_.program.data(), const_cast<char*>(number.c_str()), nullptr};
  pid_t process = 0;
  const int error =
      posix_spawn(&process, options_.program.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    throw Error(ErrorKind::kUnsupported,
                options_.program + " cannot be started: " + std::strerror(error) + ".");
  }
  // It goes on in a child of its own and ends at once.
  while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::vector<int> mates;
  const auto& nodes = options_.node_of_rank;
  const int node = nodes[static_cast<std::size_t>(options_.rank)];
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank] == node) mates.push_back(options_.process_of_rank[rank]);
  }
  send_frame(fd_, 'C',
             "pmix " + options_.pmix_library + "\nname " + options_.job + "\ndirectory " +
                 temporary_directory(options_.job + "-" + std::to_string(node)) + "\nnode " +
                 std::to_string(node) + "\nnodes " + join(nodes) + "\nprocesses " + join(mates) + "\n");
}

void PmixHelper::publish_environments() {
  set_receive_timeout(fd_, options_.timeout);
  while (auto frame = receive_frame(fd_)) {
    if (frame->kind == 'R') return set_receive_timeout(fd_, std::chrono::milliseconds(0));
    if (frame->kind == 'X') {
      throw Error(ErrorKind::kUnsupported,
                  "The PMIx server for Open MPI did not start: " + frame->body + ".");
    }
    if (frame->kind != 'E') continue;
    const std::size_t end = std::min(frame->body.find('\n'), frame->body.size());
    store_->set(options_.key_prefix + "environment/" + frame->body.substr(0, end),
                frame->body.substr(std::min(end + 1, frame->body.size())));
  }
  throw Error(ErrorKind::kUnsupported,
              "The PMIx server for Open MPI (" + options_.program + ") gives no answer.");
}

void PmixHelper::serve() {
  while (auto frame = receive_frame(fd_)) {
    const auto body = frame->kind == 'F' ? numbered_body(*frame) : std::nullopt;
    if (!body) continue;
    if (!send_frame(fd_, 'D', with_number(body->number, exchange(body->data)))) break;
  }
  close(fd_);
}

std::string PmixHelper::exchange(const std::string& own) {
  std::lock_guard guard(mutex_);
  const auto& nodes = options_.node_of_rank;
  const int count = *std::max_element(nodes.begin(), nodes.end()) + 1;
  if (store_ == nullptr || count == 1) return own;
  const int node = nodes[static_cast<std::size_t>(options_.rank)];
  const std::string key = options_.key_prefix + "fence/" + std::to_string(fences_++);
  std::string all;
  try {
    // PMIx may have nothing to say, and stores may refuse empty values.
    for (const std::string& info :
         store_allgather(*store_, key, node, count, options_.timeout, "to a fence of the nodes", "." + own))
      all += info.substr(1);
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("Starting Open MPI: lost contact with another node: ") + error.what());
  }
  return all;
}

void PmixHelper::detach_store() {
  std::lock_guard guard(mutex_);
  store_ = nullptr;
}

}  // namespace altorch
