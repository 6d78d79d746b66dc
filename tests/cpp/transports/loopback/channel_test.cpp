// SPDX-License-Identifier: BSD-3-Clause
#include "transports/loopback/channel.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/on_threads.h"
#include "transports/channel_conformance.h"

namespace altorch {
namespace {

constexpr std::size_t kBytes = sizeof(int);

State test(Channel& channel, Request& request) {
  std::optional<Error> error;
  return channel.test(std::span(&request, 1), error);
}

TEST(Loopback, KnowsItsPlace) {
  const auto channels = make_loopback_channels(3);
  ASSERT_EQ(channels.size(), 3u);
  EXPECT_EQ(channels[2]->rank(), 2);
  EXPECT_EQ(channels[2]->size(), 3);
  EXPECT_GE(channels[2]->max_tag(), 1 << 20);
}

TEST(Loopback, MatchesByTagAndKeepsTheOrderWithinOne) {
  const auto channels = make_loopback_channels(2);
  const std::array<int, 3> sent = {10, 11, 12};
  const std::array<std::int64_t, 3> tags = {7, 8, 7};
  std::array<Request, 3> sends, receives;
  for (std::size_t i = 0; i < 3; ++i) channels[0]->send(&sent[i], kBytes, 1, tags[i], sends[i]);
  std::array<int, 3> got{};
  channels[1]->receive(&got[0], kBytes, 0, 8, receives[0]);
  channels[1]->receive(&got[1], kBytes, 0, 7, receives[1]);
  channels[1]->receive(&got[2], kBytes, 0, 7, receives[2]);
  std::optional<Error> error;
  EXPECT_EQ(channels[1]->test(receives, error), State::kDone);
  EXPECT_EQ(channels[0]->test(sends, error), State::kDone);
  EXPECT_EQ(got, (std::array<int, 3>{11, 10, 12}));
  EXPECT_EQ(receives[0].handle, 0u);
  EXPECT_EQ(channels[1]->test(receives, error), State::kDone);  // again
}

TEST(Loopback, ReceivesFromAnySourceAndNamesIt) {
  const auto channels = make_loopback_channels(4);
  int got = 0;
  Request receive;
  channels[0]->receive(&got, kBytes, kAnySource, 1, receive);
  EXPECT_EQ(test(*channels[0], receive), State::kPending);
  const int value = 33;
  Request wrong_tag, right;
  channels[2]->send(&value, kBytes, 0, 2, wrong_tag);
  EXPECT_EQ(test(*channels[0], receive), State::kPending);
  channels[3]->send(&value, kBytes, 0, 1, right);
  EXPECT_EQ(test(*channels[0], receive), State::kDone);
  EXPECT_EQ(receive.peer, 3);
  EXPECT_EQ(got, 33);
}

TEST(Loopback, AMessageToOneselfArrives) {
  const auto channels = make_loopback_channels(1);
  int value = 5, got = 0;
  Request send, receive;
  channels[0]->send(&value, kBytes, 0, 0, send);
  channels[0]->receive(&got, kBytes, 0, 0, receive);
  EXPECT_EQ(test(*channels[0], receive), State::kDone);
  EXPECT_EQ(got, 5);
}

TEST(Loopback, LargeMessagesWaitForTheirReceive) {
  const auto channels = make_loopback_channels(2, {.eager_bytes = 0});
  int value = 1, got = 0;
  Request send, receive, nothing;
  channels[0]->send(nullptr, 0, 1, 0, nothing);
  EXPECT_EQ(test(*channels[0], nothing), State::kDone);
  channels[0]->send(&value, kBytes, 1, 1, send);
  EXPECT_EQ(test(*channels[0], send), State::kPending);
  value = 2;  // not allowed in earnest: shows when the message is read
  channels[1]->receive(&got, kBytes, 0, 1, receive);
  EXPECT_EQ(test(*channels[1], receive), State::kDone);
  EXPECT_EQ(test(*channels[0], send), State::kDone);
  EXPECT_EQ(got, 2);
}

TEST(Loopback, SizesThatDifferFailAtTheReceiverWithBothSizes) {
  for (const std::size_t sent : {std::size_t{4}, std::size_t{12}}) {
    const auto channels = make_loopback_channels(2);
    const std::array<int, 3> values = {1, 2, 3};
    std::array<int, 2> got = {-1, -1};
    Request send, receive;
    channels[1]->send(values.data(), sent, 0, 0, send);
    channels[0]->receive(got.data(), 8, 1, 0, receive);
    std::optional<Error> error;
    EXPECT_EQ(channels[0]->test(std::span(&receive, 1), error), State::kFailed);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::kMismatch);
    const std::string what = error->what();
    EXPECT_NE(what.find("rank 1 has " + std::to_string(sent) + " bytes where this rank expects 8"),
              std::string::npos)
        << what;
    EXPECT_EQ(got, (std::array<int, 2>{-1, -1}));
    EXPECT_EQ(test(*channels[1], send), State::kDone);
  }
}

TEST(Loopback, AReceiveThatIsNotExactTakesLess) {
  const auto channels = make_loopback_channels(2);
  const int value = 9;
  std::array<int, 2> got = {-1, -1};
  Request send, receive;
  receive.exact = false;
  channels[1]->send(&value, kBytes, 0, 0, send);
  channels[0]->receive(got.data(), 8, 1, 0, receive);
  EXPECT_EQ(test(*channels[0], receive), State::kDone);
  EXPECT_EQ(got, (std::array<int, 2>{9, -1}));
}

TEST(Loopback, BadPeersAndTagsFail) {
  const auto channels = make_loopback_channels(2);
  int value = 0;
  for (const auto& [peer, tag] : std::vector<std::pair<int, std::int64_t>>{{2, 0}, {-2, 0}, {1, -1}}) {
    Request request;
    channels[0]->send(&value, kBytes, peer, tag, request);
    std::optional<Error> error;
    EXPECT_EQ(channels[0]->test(std::span(&request, 1), error), State::kFailed);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::kInvalidArgument);
  }
}

TEST(Loopback, CancelWithdrawsWhatHasNotMet) {
  const auto channels = make_loopback_channels(2, {.eager_bytes = 0});
  int value = 1, got = 0;
  Request send, receive;
  channels[0]->send(&value, kBytes, 1, 0, send);
  EXPECT_TRUE(channels[0]->cancel(std::span(&send, 1)));
  EXPECT_EQ(send.handle, 0u);
  channels[1]->receive(&got, kBytes, 0, 0, receive);
  EXPECT_EQ(test(*channels[1], receive), State::kPending);
  EXPECT_TRUE(channels[1]->cancel(std::span(&receive, 1)));
  // The next pair meets as if the first had never been.
  Request again, receive_again;
  int late = 0;
  value = 2;
  channels[0]->send(&value, kBytes, 1, 0, again);
  channels[1]->receive(&late, kBytes, 0, 0, receive_again);
  EXPECT_EQ(test(*channels[1], receive_again), State::kDone);
  EXPECT_EQ(late, 2);
  EXPECT_EQ(got, 0);
}

// The order in which messages of `tags` tags arrive, each sent three times.
std::vector<std::pair<int, int>> arrivals(std::uint64_t seed) {
  const auto channels = make_loopback_channels(2, {.longest_delay = 20, .seed = seed});
  constexpr int kTags = 6, kTimes = 3;
  std::vector<int> got(kTags * kTimes);
  std::vector<Request> sends(got.size()), receives(got.size());
  for (int time = 0; time < kTimes; ++time) {
    for (int tag = 0; tag < kTags; ++tag) {
      const auto i = static_cast<std::size_t>(time * kTags + tag);
      channels[0]->send(&time, kBytes, 1, tag, sends[i]);
      channels[1]->receive(&got[i], kBytes, 0, tag, receives[i]);
    }
  }
  std::vector<std::pair<int, int>> order;  // tag, value
  std::vector<bool> seen(got.size());
  for (int turn = 0; turn < 1000 && order.size() < got.size(); ++turn) {
    std::optional<Error> error;
    EXPECT_NE(channels[1]->test(receives, error), State::kFailed);
    for (std::size_t i = 0; i < receives.size(); ++i) {
      if (receives[i].handle != 0 || seen[i]) continue;
      seen[i] = true;
      order.emplace_back(static_cast<int>(i) % kTags, got[i]);
    }
  }
  return order;
}

TEST(Loopback, DelaysComeFromTheSeedAndKeepTheOrderWithinATag) {
  const auto order = arrivals(1);
  ASSERT_EQ(order.size(), 18u);
  std::array<int, 6> next{};
  bool overtaken = false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto [tag, value] = order[i];
    EXPECT_EQ(value, next[static_cast<std::size_t>(tag)]++) << "tag " << tag;
    overtaken = overtaken || (i > 0 && order[i - 1].second > value);
  }
  EXPECT_TRUE(overtaken) << "no message overtook another";
  EXPECT_EQ(arrivals(1), order);
  EXPECT_NE(arrivals(2), order);
}

// As over MPI (tests/cpp/bootstrap/mpi_ranks.cpp), under deliveries of every kind.
TEST(Loopback, IsAChannel) {
  for (const int size : {1, 2, 3}) {
    for (const LoopbackOptions& options : {LoopbackOptions{}, LoopbackOptions{.eager_bytes = 0},
                                           LoopbackOptions{.longest_delay = 5, .seed = 3}}) {
      const auto channels = make_loopback_channels(size, options);
      const auto errors = on_threads(
          size, [&](int rank) { conformance::channel_conforms(*channels[static_cast<std::size_t>(rank)]); });
      EXPECT_EQ(errors, std::vector<std::string>(channels.size()));
    }
  }
}

TEST(Loopback, TellsTypesApart) {
  const auto channels = make_loopback_channels(2);
  const auto errors = on_threads(
      2, [&](int rank) { conformance::types_are_told_apart(*channels[static_cast<std::size_t>(rank)]); });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

}  // namespace
}  // namespace altorch
