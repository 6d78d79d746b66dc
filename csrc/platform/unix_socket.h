// SPDX-License-Identifier: BSD-3-Clause
// Names of Unix sockets in the kernel's own space, which are no files and go with their sockets; and who is at the other end.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace altorch {

// What does not fit is cut off.
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

// Of the process at the other end: anybody may take a name.
inline std::optional<ucred> peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer;
}

}  // namespace altorch
