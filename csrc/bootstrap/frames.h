// SPDX-License-Identifier: BSD-3-Clause
// The messages between the PMIx helper and the process that started it, over their socket: a type,
// which is one character, and a payload.
//
//   to the helper    C  its configuration: lines "key value"
//                    D  the end of a fence: 4 bytes fence number, then every node's data
//   from the helper  E  the environment of one rank: its number, then NAME=VALUE lines
//                    R  ready
//                    X  it cannot work; the text says why
//                    F  the beginning of a fence: 4 bytes fence number, then this node's data
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace altorch {

constexpr std::size_t kAtOnce = 1 << 20;  // bytes of a body

struct Frame {
  char kind = 0;
  std::string body;
};

inline bool send_frame(int fd, char kind, const std::string& body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  std::string bytes(1, kind);
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += body;
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

inline bool receive_bytes(int fd, char* target, std::size_t count) {
  for (std::size_t received = 0; received < count;) {
    const ssize_t n = recv(fd, target + received, count - received, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    received += static_cast<std::size_t>(n);
  }
  return true;
}

// Nothing when the other end is closed. Memory is taken as bytes come, whatever length was
// announced.
inline std::optional<Frame> receive_frame(int fd) {
  char head[1 + sizeof(std::uint32_t)];
  if (!receive_bytes(fd, head, sizeof(head))) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, head + 1, sizeof(length));
  Frame frame{head[0], {}};
  while (frame.body.size() < length) {
    const std::size_t before = frame.body.size(), more = std::min<std::size_t>(length - before, kAtOnce);
    frame.body.resize(before + more);
    if (!receive_bytes(fd, frame.body.data() + before, more)) return std::nullopt;
  }
  return frame;
}

// Fence numbers in front of a body.
inline std::string with_number(std::uint32_t number, const std::string& data) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number)) + data;
}
struct NumberedBody {
  std::uint32_t number = 0;
  std::string data;
};
// Nothing where there is none.
inline std::optional<NumberedBody> numbered_body(const Frame& frame) {
  NumberedBody body;
  if (frame.body.size() < sizeof(body.number)) return std::nullopt;
  std::memcpy(&body.number, frame.body.data(), sizeof(body.number));
  body.data = frame.body.substr(sizeof(body.number));
  return body;
}

}  // namespace altorch
