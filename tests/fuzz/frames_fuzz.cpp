// SPDX-License-Identifier: BSD-3-Clause
// What the PMIx helper and the process that started it read from their socket.
#include <unistd.h>

#include "bootstrap/frames.h"
#include "fuzz/target.h"

namespace altorch {

FUZZ_TARGET(frames, 2000) {
  const std::string said = input.rest();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  const bool sent = send(ends[1], said.data(), said.size(), MSG_NOSIGNAL) >= 0;
  shutdown(ends[1], SHUT_WR);
  std::string read;
  while (auto frame = sent ? receive_frame(ends[0]) : std::nullopt) {
    const auto length = static_cast<std::uint32_t>(frame->body.size());
    read += frame->kind;
    read += with_number(length, frame->body);
    if (const auto numbered = numbered_body(*frame))
      fuzz::require(with_number(numbered->number, numbered->data) == frame->body,
                    "a fence's number survives");
  }
  close(ends[0]);
  close(ends[1]);
  fuzz::require(said.starts_with(read), "frames are what was sent");
}

}  // namespace altorch
