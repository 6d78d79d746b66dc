// SPDX-License-Identifier: BSD-3-Clause
#include "platform/unix_socket.h"

#include <unistd.h>

#include <fstream>

namespace altorch {

bool is_same_user(const ucred& peer) {
  static const uid_t overflow = [] {
    uid_t found = 65534;  // the kernel's default
    std::ifstream("/proc/sys/kernel/overflowuid") >> found;
    return found;
  }();
  return is_same_user(peer, geteuid(), overflow);
}

}  // namespace altorch
