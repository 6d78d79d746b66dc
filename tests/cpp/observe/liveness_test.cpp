#include "observe/liveness.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "support/map_store.h"

namespace altorch {
namespace {

// What a rank of this very host would have published.
std::string entry_of(pid_t process) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  char target[64] = {};
  [[maybe_unused]] const auto length = readlink("/proc/self/ns/pid", target, sizeof target - 1);
  return boot + "/" + target + " " + std::to_string(process);
}

TEST(Liveness, SeesAKilledNeighbourAndTellsOtherNodes) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  auto store = std::make_shared<MapStore>();
  store->set("alive/1", entry_of(child));
  store->set("alive/2", "another-host/pid:[1] 77");
  Liveness liveness(store, 0, 3, std::chrono::seconds(5));
  const std::vector<int> everybody = {0, 1, 2};
  EXPECT_FALSE(liveness.check(everybody, true).has_value());
  kill(child, SIGKILL);
  std::optional<Liveness::Death> death;
  for (int i = 0; i < 2000 && !death; ++i) {
    death = liveness.check(everybody, false);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(death.has_value());
  EXPECT_EQ(death->rank, 1);
  EXPECT_TRUE(store->try_get("dead/1").has_value());
  waitpid(child, nullptr, 0);

  const std::vector<int> far = {2};
  EXPECT_FALSE(liveness.check(far, true).has_value());
  store->set("dead/2", "1");
  EXPECT_FALSE(liveness.check(far, false).has_value());
  ASSERT_TRUE(liveness.check(far, true).has_value());
}

}  // namespace
}  // namespace altorch
