// SPDX-License-Identifier: BSD-3-Clause
// What a stall costs the store: one rank is missing in a collective, and all others ask why.
#include <gtest/gtest.h>

#include "health/death_list.h"
#include "rendezvous/poll_pause.h"
#include "runtime/group.h"
#include "runtime/watchdog.h"
#include "support/says.h"
#include "support/simulated_store.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A rank of a group as its engine has it, without anything that carries messages.
struct StalledRank {
  StalledRank(const std::shared_ptr<SimulatedStore>& store, int rank, int size) : deaths(store) {
    LivenessSettings alone;  // the processes that it would watch are not there
    alone.store = store;
    alone.rank = rank;
    alone.members = {{rank, ProcessId::own()}};
    Membership membership{"g", std::vector<int>(static_cast<std::size_t>(size)), store,
                          std::make_shared<JobWatch>("job", alone, size), rank};
    group = std::make_unique<Group>(membership, rank, size);
    watchdog = std::make_unique<Watchdog>(*group);
  }

  // Looks ten times a second, as the thread that carries the call does, and asks who is dead at
  // every tenth look, as liveness does for ranks that have peers on other nodes.
  std::optional<Error> stall(const Operation& operation) {
    Wait wait;
    wait.issued = wait.began = WaitClock::now();
    while (true) {
      const auto until = WaitClock::now() + seconds(1);
      for (int look = 10; look > 0; --look) {
        if (auto error = watchdog->examine(operation, wait, until - milliseconds(100) * (look - 1)))
          return error;
      }
      deaths.take_new();
      if (WaitClock::now() < until) WaitClock::sleep_for(until - WaitClock::now());
    }
  }

  std::unique_ptr<Group> group;
  std::unique_ptr<Watchdog> watchdog;
  DeathList deaths;
};

// The last rank does not come.
std::vector<std::string> stall(SimulatedTime& time, const std::shared_ptr<SimulatedStore>& store,
                               seconds length) {
  const int size = time.ranks();
  return time.run([&, length](int rank) {
    if (rank == size - 1) return;
    StalledRank own(store, rank, size);
    Operation operation;
    operation.kind = OpKind::kAllReduce;
    operation.timeout = length;
    operation.sequence = own.group->next_sequence();
    own.group->started(operation);
    if (const auto error = own.stall(operation)) throw *error;
  });
}

TEST(ScaleOfStalls, AFewRequestsASecondAndRank) {
  constexpr int kLength = 30;
  for (const int size : scales()) {
    SimulatedTime time(size);
    const auto store = std::make_shared<SimulatedStore>(time);
    const auto errors = stall(time, store, seconds(kLength));
    store->tell("stall");
    // Is the group closed, has a call been refused, what did the first one call, has a rank asked,
    // who is dead?
    const int pauses = static_cast<int>(seconds(kLength) / calm_pace(size));
    const int of_the_end = 40;  // where are all, asked by one of them
    EXPECT_LE(store->most(), kLength + 4 * pauses + of_the_end) << size;
    EXPECT_LE(store->in_all().requests(), (kLength + 4 * pauses + of_the_end) * size) << size;
    EXPECT_LE(store->in_all().requests(), 10000 * kLength) << size;
    // By the first one, more and more rarely.
    EXPECT_LE(store->value("queries").value_or("0").size(), 1U) << size;
    EXPECT_TRUE(says(errors.front(), "not done after its timeout of 30 s: ranks not waiting in this group: " +
                                         std::to_string(size - 1)))
        << errors.front();
    if (size > 2) {
      EXPECT_EQ(errors[1], errors[0]);
    }
  }
}

}  // namespace
}  // namespace altorch
