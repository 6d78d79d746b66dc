// SPDX-License-Identifier: BSD-3-Clause
#include "health/sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/env.h"
#include "base/error.h"

namespace altorch {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses look_up(const std::string& host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  if (getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &found) != 0)
    found = nullptr;
  return Addresses(found, &freeaddrinfo);
}

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

bool is_loopback(const std::string& address) {
  return address.empty() || address.starts_with("127.") || address == "::1";
}

std::pair<int, int> listen_on(const std::string& address) {
  const Addresses all = look_up(address, 0, AI_PASSIVE);
  for (const addrinfo* entry = all.get(); entry; entry = entry->ai_next) {
    const int made = socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) continue;
    sockaddr_storage bound = {};
    socklen_t length = sizeof bound;
    if (bind(made, entry->ai_addr, entry->ai_addrlen) == 0 && listen(made, SOMAXCONN) == 0 &&
        getsockname(made, reinterpret_cast<sockaddr*>(&bound), &length) == 0) {
      const auto port = bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                                    : reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
      return {made, ntohs(port)};
    }
    close(made);
  }
  throw Error(ErrorKind::kTransport, "cannot listen on address '" + address + "': " + std::strerror(errno));
}

int connect_to(const std::string& host, int port) {
  const Addresses all = look_up(host, port, 0);
  for (const addrinfo* entry = all.get(); entry; entry = entry->ai_next) {
    const int made = socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) continue;
    const timeval timeout{3, 0};  // holds for connect() too
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(made, entry->ai_addr, entry->ai_addrlen) == 0) return made;
    close(made);
  }
  return -1;
}

bool nothing_listens(const std::string& host, int port) {
  constexpr int kTimeoutMs = 100;
  const Addresses all = look_up(host, port, 0);
  bool refused = false;
  for (const addrinfo* entry = all.get(); entry; entry = entry->ai_next) {
    const int made = socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) continue;
    int error = connect(made, entry->ai_addr, entry->ai_addrlen) == 0 ? 0 : errno;
    pollfd waits{made, POLLOUT, 0};
    if (error == EINPROGRESS && poll(&waits, 1, kTimeoutMs) > 0) {
      socklen_t length = sizeof error;
      if (getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    }
    close(made);
    if (error != ECONNREFUSED) return false;
    refused = true;
  }
  return refused;
}

void keep_alive(int socket) {
  constexpr int kLongest = 86400, kProbes = 4;
  const int seconds =
      static_cast<int>(std::clamp(numeric_setting("ALTORCH_SILENCE_SECONDS"), 1.0, double{kLongest}));
  const int between = std::clamp(seconds / kProbes, 1, 10);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, between);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, between);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, std::clamp(seconds / between, 1, 127));
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * seconds);  // of what is probed, too
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);                    // what is held back is lost with a connection
}

bool is_quiet(int socket) {
  tcp_info info = {};
  socklen_t length = sizeof info;
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_retransmits == 0 &&
         info.tcpi_probes == 0;
}

void say_last(int socket, std::string_view text) {
  send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(socket, SHUT_WR);
  char unread[1024];
  for (int reads = 0; reads < 64 && recv(socket, unread, sizeof unread, MSG_DONTWAIT) > 0; ++reads) {
  }
}

void close_socket(int socket) { close(socket); }

}  // namespace altorch
