// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/pmi1_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "platform/native_thread.h"

namespace altorch {
namespace {

// MPICH's own limits leave room for the command in its line of 1024 bytes; the length of values
// must be even.
constexpr int kMaxName = 64;
constexpr int kMaxKey = 256;
constexpr std::size_t kMaxValue = 512;
constexpr std::size_t kMaxLine = 4096;

bool send_all(int fd, const std::string& text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    ssize_t n = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

// Ends the process when MPI asks for an abort. MPICH 4.0 would go on with garbage otherwise; other
// versions end themselves once they have said why.
[[noreturn]] void end_process(const std::string& line) {
  const int code = to_number<int>(pmi1_field(line, "exitcode")).value_or(1);
  log(LogLevel::kError, "MPI aborts this process (code " + std::to_string(code) + ").");
  sleep(1);
  _exit(code != 0 && code % 256 != 0 ? code : 1);
}

}  // namespace

std::string pmi1_field(const std::string& line, const std::string& key) {
  const std::string wanted = key + "=";
  std::size_t at = 0;
  while (at < line.size()) {
    std::size_t end = line.find_first_of(" \n", at);
    if (end == std::string::npos) end = line.size();
    if (line.compare(at, wanted.size(), wanted) == 0) {
      if (key == "value") end = std::min(line.find('\n', at), line.size());
      return line.substr(at + wanted.size(), end - at - wanted.size());
    }
    at = end + 1;
  }
  return "";
}

std::string process_mapping(const std::vector<int>& node_of_rank) {
  // Runs of ranks on one node, then equal runs on consecutive nodes, become one block (first node,
  // nodes, ranks each).
  struct Block {
    int node, nodes, ranks;
  };
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < node_of_rank.size();) {
    std::size_t end = i;
    while (end < node_of_rank.size() && node_of_rank[end] == node_of_rank[i]) ++end;
    const int ranks = static_cast<int>(end - i);
    if (!blocks.empty() && blocks.back().ranks == ranks &&
        node_of_rank[i] == blocks.back().node + blocks.back().nodes) {
      ++blocks.back().nodes;
    } else {
      blocks.push_back({node_of_rank[i], 1, ranks});
    }
    i = end;
  }
  std::string text = "(vector";
  for (const Block& block : blocks) {
    text += ",(" + std::to_string(block.node) + "," + std::to_string(block.nodes) + "," +
            std::to_string(block.ranks) + ")";
  }
  text += ")";
  return text.size() < kMaxValue ? text : "";
}

std::shared_ptr<Pmi1Server> Pmi1Server::start(Pmi1Job job, KeyValueStore* store) {
  std::shared_ptr<Pmi1Server> server(new Pmi1Server(std::move(job), store));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(ErrorKind::kTransport,
                std::string("No socket for starting MPI: ") + std::strerror(errno) + ".");
  }
  server->client_fd_ = ends[0];
  try {
    start_native_thread("altorch-pmi", [server, fd = ends[1]] {
      server->serve(fd);
      close(fd);
    });
  } catch (const Error&) {
    close(ends[0]);
    close(ends[1]);
    throw;
  }
  return server;
}

void Pmi1Server::detach_store() {
  std::lock_guard guard(mutex_);
  store_ = nullptr;
}

std::string Pmi1Server::failure() {
  std::lock_guard guard(mutex_);
  return failure_;
}

// MPI makes little of a failed request but an abort, so the cause is told here.
void Pmi1Server::fail(const std::string& reason) {
  failure_ = reason;
  log(LogLevel::kError,
      "Starting MPI: rank " + std::to_string(job_.rank) + " lost contact with the others: " + reason);
}

void Pmi1Server::serve(int fd) {
  std::string pending;
  char buffer[4096];
  while (true) {
    std::size_t newline;
    while ((newline = pending.find('\n')) != std::string::npos) {
      const std::string line = pending.substr(0, newline + 1);
      pending.erase(0, newline + 1);
      const std::string reply = answer(line);
      if (reply.empty() || !send_all(fd, reply)) return;
    }
    if (pending.size() > kMaxLine) {
      const std::lock_guard guard(mutex_);
      return fail("what MPI sends is no PMI: " + excerpt(pending));
    }
    ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    pending.append(buffer, static_cast<std::size_t>(n));
  }
}

std::string Pmi1Server::answer(const std::string& line) {
  const std::string command = pmi1_field(line, "cmd");
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
  if (command == "get_maxes") {
    return "cmd=maxes kvsname_max=" + std::to_string(kMaxName) + " keylen_max=" + std::to_string(kMaxKey) +
           " vallen_max=" + std::to_string(kMaxValue) + "\n";
  }
  if (command == "get_appnum") return "cmd=appnum appnum=0\n";
  if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=" + job_.name + "\n";
  if (command == "get_universe_size") return "cmd=universe_size size=" + std::to_string(job_.size) + "\n";
  if (command == "put") return put(line);
  if (command == "get") return get(line);
  if (command == "barrier_in") return barrier();
  if (command == "get_node_mates") return node_mates();
  if (command == "finalize") return "cmd=finalize_ack\n";
  if (command == "abort") end_process(line);
  // spawn, publish_name and their like: not ours to offer.
  return "cmd=" + command + "_result rc=-1 msg=not_supported\n";
}

// Not part of PMI: flux/ asks it.
std::string Pmi1Server::node_mates() const {
  std::string ranks;
  for (std::size_t i = 0; i < job_.node_of_rank.size(); ++i) {
    if (job_.node_of_rank[i] != job_.node_of_rank[static_cast<std::size_t>(job_.rank)]) continue;
    ranks += (ranks.empty() ? "" : ",") + std::to_string(i);
  }
  return "cmd=node_mates ranks=" + ranks + "\n";
}

std::string Pmi1Server::put(const std::string& line) {
  std::lock_guard guard(mutex_);
  if (store_ == nullptr) return "cmd=put_result rc=-1 msg=closed\n";
  try {
    store_->set(job_.key_prefix + pmi1_field(line, "key"), pmi1_field(line, "value"));
  } catch (const std::exception& error) {
    fail(error.what());
    return "cmd=put_result rc=-1 msg=store_failed\n";
  }
  return "cmd=put_result rc=0 msg=success\n";
}

std::string Pmi1Server::get(const std::string& line) {
  static const std::string absent = "cmd=get_result rc=-1 msg=key_not_found\n";
  const std::string key = pmi1_field(line, "key");
  if (key == "PMI_process_mapping") {
    // Without it MPI compares host names.
    const std::string mapping = process_mapping(job_.node_of_rank);
    return mapping.empty() ? absent : "cmd=get_result rc=0 msg=success value=" + mapping + "\n";
  }
  // Other keys of this name are offers of richer process managers; asking the store for them would
  // only cost time.
  if (key.starts_with("PMI_")) return absent;
  std::lock_guard guard(mutex_);
  if (store_ == nullptr) return absent;
  try {
    // MPI reads only what was put before a barrier, so that what is not there will not come.
    std::optional<std::string> value = store_->try_get(job_.key_prefix + key);
    if (!value) return absent;
    if (value->size() > kMaxLine || value->find('\n') != std::string::npos)
      throw Error(ErrorKind::kInternal, "what a rank wrote under " + excerpt(key) + " is no value of PMI");
    return "cmd=get_result rc=0 msg=success value=" + *value + "\n";
  } catch (const std::exception& error) {
    fail(error.what());
    return absent;
  }
}

std::string Pmi1Server::barrier() {
  static const std::string done = "cmd=barrier_out rc=0\n";
  std::lock_guard guard(mutex_);
  // After MPI_Init MPI has better barriers of its own; the last ones, in MPI_Finalize, follow one
  // that we make over MPI.
  if (store_ == nullptr) return done;
  const std::string key = job_.key_prefix + "barrier/" + std::to_string(barriers_++);
  try {
    if (store_->add(key, 1) == job_.size) {
      store_->set(key + "/done", "1");
    } else {
      store_->get(key + "/done", job_.timeout);
    }
  } catch (const std::exception& error) {
    fail(error.what());
    return "cmd=barrier_out rc=-1 msg=store_failed\n";
  }
  return done;
}

}  // namespace altorch
