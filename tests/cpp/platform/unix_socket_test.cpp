// SPDX-License-Identifier: BSD-3-Clause
#include "platform/unix_socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace altorch {
namespace {

TEST(UnixSocket, TellsThisUserFromOnesThatAreNotMapped) {
  const auto peer = [](pid_t pid, uid_t uid) { return ucred{.pid = pid, .uid = uid, .gid = 0}; };
  EXPECT_TRUE(is_same_user(peer(7, 1000), 1000, 65534));
  EXPECT_TRUE(is_same_user(peer(0, 1000), 1000, 65534));  // of another pid namespace
  EXPECT_FALSE(is_same_user(peer(7, 1001), 1000, 65534));
  EXPECT_TRUE(is_same_user(peer(7, 65534), 65534, 65534));
  EXPECT_FALSE(is_same_user(peer(0, 65534), 65534, 65534));
  EXPECT_TRUE(is_same_user(peer(getpid(), geteuid())));
}

}  // namespace
}  // namespace altorch
