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

LivenessSettings settings_of(std::shared_ptr<KeyValueStore> store, int rank,
                             std::map<int, ProcessId> members) {
  LivenessSettings settings;
  settings.store = std::move(store);
  settings.rank = rank;
  settings.members = std::move(members);
  settings.address = settings.master = "127.0.0.1";
  return settings;
}

TEST(Liveness, SeesAKilledNeighbourAndTellsOtherNodes) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  auto store = std::make_shared<MapStore>();
  // Numbers of the job, of which this watch knows three.
  const ProcessId own = ProcessId::own();
  Liveness liveness(settings_of(store, 5, {{5, own}, {1, {own.home, child}}, {2, {"another-host/p", 77}}}));
  const std::vector<int> everybody = {0, 1, 2, 5};
  EXPECT_FALSE(liveness.check(everybody, true).has_value());
  kill(child, SIGKILL);
  std::optional<Liveness::Death> death;
  for (int i = 0; i < 2000 && !death; ++i) {
    death = liveness.check(everybody, false);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(death.has_value());
  EXPECT_EQ(death->rank, 1);
  for (int i = 0; i < 2000 && !store->try_get("death/1"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(store->try_get("death/1"), "1");
  EXPECT_EQ(store->try_get("deaths"), "1");
  waitpid(child, nullptr, 0);

  const std::vector<int> far = {2};
  EXPECT_FALSE(liveness.check(far, true).has_value());
  store->set("death/2", "2");
  store->add("deaths", 1);
  EXPECT_FALSE(liveness.check(far, false).has_value());
  ASSERT_TRUE(liveness.check(far, true).has_value());
}

}  // namespace
}  // namespace altorch
