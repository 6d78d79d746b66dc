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

constexpr std::int64_t kSlow = 1'000'000;  // nanoseconds

void be_slow(PeerCopy& copy, int times) {
  for (int i = 0; i < times; ++i) copy.note(kBytes, kSlow);
}

#if defined(__x86_64__)
TEST(PeerCopy, StreamsWhileStoresAreSlow) {
  PeerCopy copy;
  EXPECT_FALSE(copy.streams(kBytes));
  be_slow(copy, 1);
  EXPECT_FALSE(copy.streams(kBytes)) << "it may have been interrupted";
  copy.note(kBytes, 1);
  be_slow(copy, 1);
  EXPECT_FALSE(copy.streams(kBytes)) << "two in a row";
  be_slow(copy, 1);
  EXPECT_TRUE(copy.streams(kBytes));
  EXPECT_FALSE(copy.streams(kBytes - 1));
}

// Then a trial is due. Copies here may be slow themselves, and end the streaming sooner.
TEST(PeerCopy, StreamsForALimitedNumberOfCopies) {
  PeerCopy copy;
  be_slow(copy, 2);
  std::vector<std::byte> from(kBytes), to(kBytes);
  int streams = 0;
  for (; copy.streams(kBytes) && streams < 1000; ++streams) copy.copy(to.data(), from.data(), kBytes);
  EXPECT_GT(streams, 0);
  EXPECT_LT(streams, 100);
}

// Where memory is what is slow, streaming would only burden it more.
TEST(PeerCopy, StopsWhereStreamingIsSlowToo) {
  PeerCopy copy;
  be_slow(copy, 2);
  ASSERT_TRUE(copy.streams(kBytes));
  copy.note_streamed(kBytes, kBytes / 5);
  EXPECT_TRUE(copy.streams(kBytes));
  copy.note_streamed(kBytes, kSlow);
  EXPECT_FALSE(copy.streams(kBytes));
  be_slow(copy, 8);
  EXPECT_FALSE(copy.streams(kBytes));
  be_slow(copy, 12);
  EXPECT_TRUE(copy.streams(kBytes)) << "it tries again";
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
