#include "bootstrap/cards.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "support/map_store.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;

RankCard example() {
  RankCard card;
  card.problem = "no library";
  card.mode = StartMode::kLauncher;
  card.version = "Open MPI v4.1.4";
  card.job = "altorch-1";
  card.node = "boot/pid:[1]/ipc:[2]/shm:3:1";
  card.memory = {123, 0xfffffffffffffff0u, 42};
  card.free_shared_memory = 1'000'000'000'000;
  card.address = "10.0.0.1";
  card.address_is_loopback = false;
  return card;
}

TEST(RankCard, SurvivesTheStore) {
  const RankCard card = decode_card(encode(example()));
  EXPECT_EQ(card.problem, "no library");
  EXPECT_TRUE(card.mode == StartMode::kLauncher);
  EXPECT_EQ(card.version, "Open MPI v4.1.4");
  EXPECT_EQ(card.job, "altorch-1");
  EXPECT_EQ(card.node, "boot/pid:[1]/ipc:[2]/shm:3:1");
  EXPECT_EQ(card.memory.process, 123);
  EXPECT_EQ(card.memory.address, 0xfffffffffffffff0u);
  EXPECT_EQ(card.free_shared_memory, 1'000'000'000'000u);
  EXPECT_EQ(card.address, "10.0.0.1");
  EXPECT_FALSE(card.address_is_loopback);
}

TEST(RankCard, EmptyFieldsSurvive) {
  const RankCard card = decode_card(encode(RankCard{}));
  EXPECT_EQ(card.problem, "");
  EXPECT_EQ(card.address, "");
}

TEST(RankCard, SomethingElseIsRefused) { EXPECT_THROW(decode_card("hello"), Error); }

// Runs `body(rank)` on one thread per rank.
template <typename Body>
void on_ranks(int size, Body body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([=] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(ExchangeCards, EveryRankGetsTheSameTable) {
  constexpr int kSize = 6;
  MapStore store;
  std::vector<CardTable> tables(kSize);
  on_ranks(kSize, [&](int rank) {
    RankCard card;
    card.version = "version " + std::to_string(rank);
    tables[static_cast<std::size_t>(rank)] =
        exchange_cards(card, rank, kSize, store, "p/", milliseconds(10000));
  });
  for (const CardTable& table : tables) {
    EXPECT_EQ(table.job, tables[0].job);
    ASSERT_EQ(table.cards.size(), static_cast<std::size_t>(kSize));
    for (std::size_t i = 0; i < table.cards.size(); ++i) {
      EXPECT_EQ(table.cards[i].version, "version " + std::to_string(i));
    }
  }
}

TEST(ExchangeCards, DrawsANewJobNameEveryTime) {
  std::set<std::string> names;
  for (int i = 0; i < 50; ++i) {
    MapStore store;
    const std::string name = exchange_cards(RankCard{}, 0, 1, store, "", milliseconds(100)).job;
    EXPECT_LT(name.size(), 64u);
    names.insert(name);
  }
  EXPECT_EQ(names.size(), 50u);
}

TEST(ExchangeCards, NamesTheRanksThatDidNotCome) {
  MapStore store;
  store.set("cards/1", encode(RankCard{}));
  try {
    exchange_cards(RankCard{}, 0, 4, store, "", milliseconds(30));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::kTimeout);
    EXPECT_NE(std::string(error.what()).find("2, 3"), std::string::npos);
  }
}

TEST(AllAgree, OneNoIsANoForAll) {
  for (int refusing : {-1, 0, 3}) {
    constexpr int kSize = 4;
    MapStore store;
    std::vector<int> verdicts(kSize, -1);
    on_ranks(kSize, [&](int rank) {
      verdicts[static_cast<std::size_t>(rank)] =
          all_agree(rank != refusing, kSize, store, "key", milliseconds(10000));
    });
    for (int verdict : verdicts) EXPECT_EQ(verdict, refusing < 0 ? 1 : 0);
  }
}

TEST(NumberNodes, InOrderOfFirstAppearance) {
  EXPECT_EQ(number_nodes({"b", "a", "b", "c"}), (std::vector<int>{0, 1, 0, 2}));
}

}  // namespace
}  // namespace altorch
