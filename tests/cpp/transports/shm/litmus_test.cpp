// SPDX-License-Identifier: BSD-3-Clause
// The order of memory in a Segment: what a rank has published is there, and stays until all have
// read it.
#include "transports/shm/litmus.h"

#include <gtest/gtest.h>

#include <atomic>

#include "transports/shm/segment.h"
#include "transports/shm/shm_ranks.h"

namespace altorch::shm {
namespace {

using litmus::draw;
using litmus::stamp;

constexpr std::size_t kArea = 16 << 10;
constexpr std::uint64_t kInArea = 8, kInline = Segment::kInlineBytes / 8;
constexpr std::uint64_t kMade = 100, kCount = 200, kWord = 300;  // places of a stamp, beside those in areas

std::uint64_t call_of(std::uint64_t step) { return draw(step, 1); }

// One rank, step by step: for whom it waits in a step, and so what it may read, is drawn as
// collectives choose it.
class Racer {
 public:
  Racer(const std::shared_ptr<std::byte>& memory, int rank, int size, litmus::Race& race,
        std::atomic<std::uint64_t>& last)
      : race_(race), last_(last), segment_(memory, rank, size, kArea), rank_(rank), size_(size) {}

  void run() {
    for (step_ = 1; step_ <= last_.load(std::memory_order_relaxed); ++step_) {
      // No other is further than this step, and each sees what is written here when it has come to
      // the next but one.
      if (rank_ == 0 && step_ + 2 < last_.load(std::memory_order_relaxed) && !race_.goes_on(step_ + 2))
        last_.store(step_ + 2, std::memory_order_relaxed);
      race_.until([&] { return segment_.all_at(step_ - 1); });
      write();
      segment_.publish(step_, call_of(step_), stamp(rank_, step_, kWord));
      for (int peer = 0; peer < size_; ++peer) {
        if (!waits_for(peer)) continue;
        race_.until([&] {
          // What this line showed two steps ago is no call of this step.
          race_.expect(!segment_.is_at(peer, step_, call_of(step_ - 2)), "the call before was met", step_);
          return segment_.is_at(peer, step_, call_of(step_));
        });
      }
      if (all_wait()) race_.until([&] { return segment_.all_are_at(step_, call_of(step_)); });
      read_all();
      stumble();
      read_all();
      if (all_wait()) *place(rank_, step_ + 1, kMade) = stamp(rank_, step_, kMade);
    }
  }

 private:
  bool all_wait() const { return all_wait(step_); }
  static bool all_wait(std::uint64_t step) { return step > 0 && draw(step, 3) % 4 < 2; }
  // In other steps a root waits for all, or all for a root.
  bool waits_for(int peer) const {
    const auto root = static_cast<int>(draw(step_, 4) % static_cast<std::uint64_t>(size_));
    const bool root_waits = draw(step_, 3) % 4 == 2;
    return peer != rank_ && (all_wait() || (root_waits ? rank_ : peer) == root);
  }

  void stumble() const { litmus::stumble(step_, static_cast<std::uint64_t>(rank_)); }

  // On cache lines of their own, all over the area; the end is kept for what is made of others'
  // data.
  std::uint64_t* place(int rank, std::uint64_t step, std::uint64_t which) const {
    const std::size_t at = which == kMade ? kArea - 8 : which * (kArea / kInArea) + which * 8;
    return reinterpret_cast<std::uint64_t*>(segment_.area(rank, step) + at);
  }
  std::uint64_t* inlined(int rank) const {
    return reinterpret_cast<std::uint64_t*>(segment_.inlined(rank, step_));
  }

  void write() {
    stumble();
    for (std::uint64_t i = 0; i < kInArea; ++i) *place(rank_, step_, i) = stamp(rank_, step_, i);
    for (std::uint64_t i = 0; i < kInline; ++i) inlined(rank_)[i] = stamp(rank_, step_, i);
    for (int peer = 0; peer < size_; ++peer)
      segment_.counts(rank_, step_)[peer] = static_cast<std::int64_t>(stamp(rank_, step_, kCount));
  }
  void read_all() {
    for (int peer = 0; peer < size_; ++peer) {
      if (!waits_for(peer)) continue;
      for (std::uint64_t i = kInArea; i-- > 0;)
        race_.expect(*place(peer, step_, i) == stamp(peer, step_, i), "an area is of another step", step_);
      for (std::uint64_t i = 0; i < kInline; ++i)
        race_.expect(inlined(peer)[i] == stamp(peer, step_, i), "a line is of another step", step_);
      const auto count = static_cast<std::uint64_t>(segment_.counts(peer, step_)[rank_]);
      race_.expect(count == stamp(peer, step_, kCount), "a count is of another step", step_);
      race_.expect(segment_.word(peer, step_) == stamp(peer, step_, kWord), "a word is of another step",
                   step_);
      if (all_wait(step_ - 1))
        race_.expect(*place(peer, step_, kMade) == stamp(peer, step_ - 1, kMade),
                     "a result is of another step", step_);
    }
  }

  litmus::Race& race_;
  std::atomic<std::uint64_t>& last_;
  Segment segment_;
  const int rank_, size_;
  std::uint64_t step_ = 0;
};

TEST(ShmLitmus, WhatIsPublishedIsThereUntilAllHaveReadIt) {
  for (const int size : {2, 3, 4}) {
    litmus::Race race;
    std::atomic<std::uint64_t> last = ~std::uint64_t{0};
    const auto memory = plain_memory(Segment::bytes(size, kArea));
    const auto errors = on_threads(size, [&](int rank) { Racer(memory, rank, size, race, last).run(); });
    EXPECT_EQ(errors, all_good(size));
  }
}

}  // namespace
}  // namespace altorch::shm
