// SPDX-License-Identifier: BSD-3-Clause
#include "trace/far_ranks.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/map_store.h"
#include "trace/late_answers.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class CountingStore : public MapStore {
 public:
  std::optional<std::string> try_get(const std::string& key) override {
    requests += key.starts_with("late/");
    return MapStore::try_get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    requests += key.starts_with("late/");
    return MapStore::add(key, amount);
  }
  std::atomic<int> requests{0};
};

class StoreThatIsGone : public MapStore {
 public:
  std::optional<std::string> try_get(const std::string&) override {
    throw Error(ErrorKind::kTransport, "gone");
  }
  std::int64_t add(const std::string&, std::int64_t) override { throw Error(ErrorKind::kTransport, "gone"); }
};

// This process is global rank 0, and the others are far.
struct Job {
  explicit Job(std::shared_ptr<KeyValueStore> kept, int ranks = 7)
      : store(std::move(kept)), watch("far" + std::to_string(getpid()), settings(ranks)) {}
  LivenessSettings settings(int ranks) const {
    LivenessSettings made;
    made.store = store;
    made.members = {{0, ProcessId::own()}};
    for (int rank = 1; rank < ranks; ++rank) made.members[rank] = {"elsewhere/p", 77};
    made.address = made.master = "127.0.0.1";
    return made;
  }
  FarRanks far(std::size_t most, milliseconds timeout) const {
    return FarRanks(watch, "g", most, WaitClock::now() + timeout);
  }
  static std::map<int, std::string> hear(FarRanks& far) {
    std::map<int, std::string> texts;
    far.hear(texts);
    return texts;
  }
  const std::shared_ptr<KeyValueStore> store;
  const JobWatch watch;
};

TEST(FarRanks, SayWhatIsFoundAfterTheyWereAsked) {
  const Job job(std::make_shared<MapStore>());
  const LateQuestion first{5, "g"}, second{6, "g"};
  job.store->set(LateAnswer::key(first), LateAnswer{2, "of before"}.encode());
  job.store->add(LateAnswer::count_key(first), 2);
  FarRanks far = job.far(4, seconds(20));
  far.ask(1, 5);
  far.ask(2, 6);
  std::thread answers([&] {
    std::this_thread::sleep_for(milliseconds(50));
    job.store->set(LateAnswer::key(first), LateAnswer{3, "in no call"}.encode());
    job.store->set(LateAnswer::key(second), LateAnswer{1, ""}.encode());
  });
  const auto began = WaitClock::now();
  const std::map<int, std::string> expected = {{1, "in no call"}};
  EXPECT_EQ(Job::hear(far), expected);
  EXPECT_LT(WaitClock::now() - began, seconds(15));
  answers.join();
}

TEST(FarRanks, MayBeSilent) {
  const auto store = std::make_shared<CountingStore>();
  const Job job(store);
  FarRanks far = job.far(1, milliseconds(500));
  EXPECT_EQ(store->requests, 0);
  far.ask(1, 5);
  far.ask(2, 6);  // one more than may be
  EXPECT_EQ(store->requests, 2);
  const auto began = WaitClock::now();
  EXPECT_TRUE(Job::hear(far).empty());
  EXPECT_LT(WaitClock::now() - began, milliseconds(500) + seconds(5));
  EXPECT_LT(store->requests, 100);
}

// Where all of them wait for one that does not answer.
TEST(FarRanks, CostALargeJobsStoreFewRequests) {
  const auto store = std::make_shared<CountingStore>();
  const Job job(store, 4096);
  FarRanks far = job.far(4, seconds(1));
  far.ask(1, 5);
  EXPECT_TRUE(Job::hear(far).empty());
  EXPECT_LE(store->requests, 16);
}

TEST(FarRanks, AreNotWaitedForWithoutTheStore) {
  const Job job(std::make_shared<StoreThatIsGone>());
  FarRanks far = job.far(4, seconds(20));
  const auto began = WaitClock::now();
  far.ask(1, 5);
  EXPECT_TRUE(Job::hear(far).empty());
  EXPECT_LT(WaitClock::now() - began, seconds(10));
}

// Calls that end at their deadlines together would end one after another.
TEST(FarRanks, AreNotWaitedForAgainWhereTheirNodeWasSilent) {
  const auto store = std::make_shared<CountingStore>();
  const Job job(store);
  FarRanks first = job.far(4, milliseconds(50));
  first.ask(1, 5);
  EXPECT_TRUE(Job::hear(first).empty());
  const int requests = store->requests;
  FarRanks second = job.far(4, seconds(20));
  const auto began = WaitClock::now();
  second.ask(2, 6);
  EXPECT_TRUE(Job::hear(second).empty());
  EXPECT_LT(WaitClock::now() - began, seconds(10));
  EXPECT_EQ(store->requests, requests);
}

TEST(FarRanks, AreNotAskedAboutTooLate) {
  const auto store = std::make_shared<CountingStore>();
  const Job job(store);
  FarRanks far = job.far(4, milliseconds(-1));
  far.ask(1, 5);
  EXPECT_TRUE(Job::hear(far).empty());
  EXPECT_EQ(store->requests, 0);
}

}  // namespace
}  // namespace altorch
