// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/commit_decision.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"
#include "rendezvous/store_view.h"
#include "support/map_store.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;

// Of one rank, which learns of a death after a while.
class MourningStore : public StoreView {
 public:
  MourningStore(KeyValueStore& store, bool mourns) : StoreView(store), mourns_(mourns) {}
  void check_peers() override {
    if (mourns_) throw Error(ErrorKind::kPeerLost, "rank 2 is lost");
  }

 private:
  const bool mourns_;
};

std::vector<std::string> decisions(const std::vector<std::string>& unsupported_reasons, int absent = -1,
                                   int mourner = -1, milliseconds timeout = milliseconds(20'000)) {
  MapStore store;
  std::vector<std::string> told(unsupported_reasons.size(), "absent");
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < unsupported_reasons.size(); ++rank) {
    if (static_cast<int>(rank) == absent) continue;
    ranks.emplace_back([&, rank] {
      MourningStore own(store, static_cast<int>(rank) == mourner);
      told[rank] =
          decide_commit(own, "commit", static_cast<int>(rank), static_cast<int>(unsupported_reasons.size()),
                        timeout, unsupported_reasons[rank]);
    });
  }
  for (std::thread& each : ranks) each.join();
  return told;
}

TEST(CommitDecision, IsForAllThatAllHaveMadeIt) {
  EXPECT_EQ(decisions({"", "", ""}), (std::vector<std::string>{"", "", ""}));
  EXPECT_EQ(decisions({""}), std::vector<std::string>{""});
}

TEST(CommitDecision, IsForAllWhyOneHasNot) {
  const std::string why = "rank 1: no room";
  EXPECT_EQ(decisions({"", "no room", ""}), (std::vector<std::string>{why, why, why}));
  EXPECT_EQ(decisions({"no room"}), std::vector<std::string>{"no room"});
}

TEST(CommitDecision, IsAgainstItWhereOneIsLostOrDoesNotCome) {
  const auto lost = decisions({"", "", ""}, /*absent=*/2, /*mourner=*/1);
  EXPECT_EQ(lost, (std::vector<std::string>{"rank 2 is lost", "rank 2 is lost", "absent"}));
  const auto late = decisions({"", "", ""}, /*absent=*/0, /*mourner=*/-1, milliseconds(100));
  EXPECT_EQ(late[1], late[2]);
  EXPECT_NE(late[1].find("has waited for the others for 0.1 s"), std::string::npos) << late[1];
}

// The rank that decides second goes by what the first one has written.
TEST(CommitDecision, IsWhatTheFirstHasWritten) {
  for (int round = 0; round < 200; ++round) {
    const auto told = decisions({"", "", ""}, -1, /*mourner=*/1);
    EXPECT_EQ(told[0], told[1]);
    EXPECT_EQ(told[0], told[2]);
  }
}

}  // namespace
}  // namespace altorch
