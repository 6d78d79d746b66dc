// SPDX-License-Identifier: BSD-3-Clause
// Questions to a process, from outside.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>

#include "fuzz/target.h"
#include "trace/trace_socket.h"

namespace altorch {
namespace {

int connect_to(const std::string& name) {
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (made >= 0 && connect(made, reinterpret_cast<const sockaddr*>(&address), length) == 0) return made;
  close(made);
  return -1;
}

}  // namespace

// The pieces come one after another.
FUZZ_TARGET(trace_socket, 1000) {
  std::string asked;
  TraceSocket socket([&](std::string_view question) {
    asked = question;
    return std::string("answer");
  });
  const int client = connect_to(socket.name());
  if (client < 0) return;
  for (int turns = 0; turns < 16 && asked.empty(); ++turns) {
    const std::string said = input.piece().value_or("");
    if (send(client, said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    std::vector<pollfd> entries;
    socket.add_to(entries);
    poll(entries.data(), static_cast<nfds_t>(entries.size()), 0);
    socket.look(entries);
  }
  close(client);
  fuzz::require(asked.size() < 1024 && asked.find('\n') == std::string::npos, "a question is a short line");
}

}  // namespace altorch
