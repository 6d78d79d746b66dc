// SPDX-License-Identifier: BSD-3-Clause
// Abstract addresses of Unix sockets, which are no files and end with their sockets; and the
// process at the other end of a connection.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace altorch {

// A name that is longer than kLongest is cut off.
class AbstractAddress {
 public:
  static constexpr std::size_t kLongest = sizeof sockaddr_un{}.sun_path - 1;

  explicit AbstractAddress(std::string_view name) {
    name_.sun_family = AF_UNIX;  // sun_path begins with a zero: no file
    const std::size_t length = name.copy(name_.sun_path + 1, kLongest);
    bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name_); }
  socklen_t bytes() const { return bytes_; }

 private:
  sockaddr_un name_{};
  socklen_t bytes_ = 0;
};

// The ids of the process at the other end, or nothing. A name proves nothing: any process may bind
// it.
inline std::optional<ucred> peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer;
}

// Whether `peer` is a process of the user `own`. In a user namespace every user of another
// namespace that is not mapped appears as the overflow uid (/proc/sys/kernel/overflowuid), and a
// process of another pid namespace has the pid 0.
inline bool is_same_user(const ucred& peer, uid_t own, uid_t overflow) {
  return peer.uid == own && !(own == overflow && peer.pid == 0);
}
bool is_same_user(const ucred& peer);

}  // namespace altorch
