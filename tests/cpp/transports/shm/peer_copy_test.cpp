// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/peer_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <vector>

#include "transports/shm/litmus.h"
#include "transports/shm/shm_ranks.h"

namespace altorch::shm {
namespace {

constexpr std::int64_t kBytes = PeerCopy::kLeast;

void be_slow(PeerCopy& copy, int times) {
  for (int i = 0; i < times; ++i) copy.note(kBytes, kBytes);
}

// How many copies stream until one tries stores again.
int streams_of(PeerCopy& copy) {
  std::vector<std::byte> from(kBytes), to(kBytes);
  int streams = 0;
  for (; copy.streams(kBytes); ++streams) copy.copy(to.data(), from.data(), kBytes);
  return streams;
}

#if defined(__x86_64__)
TEST(PeerCopy, StreamsWhileStoresAreSlow) {
  PeerCopy copy;
  EXPECT_FALSE(copy.streams(kBytes));
  be_slow(copy, 1);
  EXPECT_FALSE(copy.streams(kBytes)) << "one may have been interrupted";
  be_slow(copy, 1);
  EXPECT_FALSE(copy.streams(kBytes - 1));
  const int first = streams_of(copy);
  EXPECT_GT(first, 0);
  int last = first;
  for (int i = 0; i < 20; ++i) {
    be_slow(copy, 1);  // the one that tried
    const int now = streams_of(copy);
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_GT(last, 10 * first);
  copy.note(kBytes, 1);
  be_slow(copy, 1);
  EXPECT_EQ(streams_of(copy), 0) << "a fast one starts anew";
  be_slow(copy, 1);
  EXPECT_EQ(streams_of(copy), first);
}
#endif

TEST(PeerCopy, CopiesAnyBytesBothWays) {
  std::mt19937 random(7);
  const std::size_t room = 3 * kBytes;
  std::vector<std::byte> from(room), to(room), expected(room);
  for (std::byte& each : from) each = static_cast<std::byte>(random());
  PeerCopy copy;
  for (int turn = 0; turn < 2000; ++turn) {
    const std::size_t bytes = turn % 3 == 0 ? random() % 130 : random() % (2 * kBytes);
    const std::size_t source = random() % 200, target = random() % 200;
    if (turn % 2 == 0) be_slow(copy, 2);
    std::fill(to.begin(), to.end(), std::byte{9});
    std::fill(expected.begin(), expected.end(), std::byte{9});
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source), bytes,
                expected.begin() + static_cast<std::ptrdiff_t>(target));
    copy.copy(to.data() + target, from.data() + source, static_cast<std::int64_t>(bytes));
    ASSERT_EQ(to, expected) << bytes << " bytes from " << source << " to " << target;
  }
}

// A peer that sees the number that was stored with release afterwards sees all bytes.
TEST(ShmLitmus, WhatWasStreamedIsThere) {
  litmus::Race race;
  std::vector<std::uint64_t> shown(4 * kBytes / 8);
  std::atomic<std::uint64_t> written{0}, read{0};
  const auto errors = on_threads(2, [&](int rank) {
    PeerCopy copy;
    std::vector<std::uint64_t> own(shown.size());
    for (std::uint64_t round = 1;; ++round) {
      if (rank == 0) {
        const bool more = race.goes_on(round);
        std::fill(own.begin(), own.end(), more ? round : 0);
        race.until([&] { return read.load(std::memory_order_acquire) == round - 1; });
        be_slow(copy, 2);
        copy.copy(shown.data(), own.data(), static_cast<std::int64_t>(8 * shown.size()));
        written.store(round, std::memory_order_release);
        if (!more) return;
      } else {
        race.until([&] { return written.load(std::memory_order_acquire) == round; });
        // From the end on, which was written last.
        const std::uint64_t last = shown.back();
        const bool whole = std::all_of(shown.rbegin(), shown.rend(), [&](auto each) { return each == last; });
        race.expect(whole && (last == round || last == 0), "old bytes", round);
        read.store(round, std::memory_order_release);
        if (last == 0) return;
      }
    }
  });
  EXPECT_EQ(errors, all_good(2));
}

}  // namespace
}  // namespace altorch::shm
