// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/probes.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace altorch {
namespace {

TEST(Probes, TheNodeKeyIsStableAndCanBeSplitForTests) {
  const std::string key = same_node_key();
  EXPECT_EQ(key, same_node_key());
  EXPECT_EQ(key.find_first_of(" \n"), std::string::npos);
  setenv("ALTORCH_TEST_NODE", "b", 1);
  EXPECT_NE(key, same_node_key());
  unsetenv("ALTORCH_TEST_NODE");
}

TEST(Probes, OwnMemoryIsReadableAndAForeignWordIsNotMistaken) {
  MemoryProbe probe = own_memory_probe();
  if (!can_read_memory(probe)) GTEST_SKIP() << "cross-memory attach is refused here";
  probe.value += 1;
  EXPECT_FALSE(can_read_memory(probe));
}

TEST(Probes, ADeadProcessIsNotReadable) {
  MemoryProbe probe = own_memory_probe();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  probe.process = child;
  EXPECT_FALSE(can_read_memory(probe));
}

TEST(Probes, TheRouteToLocalhostIsTheLoopback) {
  const RouteToHost route = route_to("localhost");
  EXPECT_EQ(route.interface, "lo");
  EXPECT_TRUE(route.is_loopback);
}

TEST(Probes, NoHostHasNoRoute) {
  EXPECT_EQ(route_to("").interface, "");
  EXPECT_EQ(route_to("host.invalid").interface, "");
}

}  // namespace
}  // namespace altorch
