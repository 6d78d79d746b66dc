// SPDX-License-Identifier: BSD-3-Clause
// What MPI says to the process manager inside its process.
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "bootstrap/pmi1_server.h"
#include "fuzz/target.h"
#include "support/map_store.h"

namespace altorch {
namespace {

// Until the server hangs up, which it does last: a signal of the fuzzer's clock does not end that.
std::string all_of(int fd) {
  std::string text;
  char bytes[4096];
  while (true) {
    const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(bytes, static_cast<std::size_t>(got));
  }
}

}  // namespace

FUZZ_TARGET(pmi1_server, 200) {
  const std::string said = input.rest();
  if (said.find("abort") != std::string::npos) return;  // which ends the process, and should
  MapStore store;
  Pmi1Job job;
  job.name = "altorch-0123";
  job.node_of_rank = {0};
  const auto server = Pmi1Server::start(job, &store);
  const int fd = server->client_fd();
  const bool sent = send(fd, said.data(), said.size(), MSG_NOSIGNAL) >= 0;
  shutdown(fd, SHUT_WR);
  const std::string answers = sent ? all_of(fd) : "";
  server->detach_store();
  close(fd);
  fuzz::require(answers.empty() || answers.ends_with('\n'), "answers are lines");
}

}  // namespace altorch
