// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/segment.h"

#include <algorithm>

#include "base/adaptive_wait.h"
#include "base/rounding.h"

namespace altorch::shm {
namespace {

constexpr std::size_t kPage = 4096;

// What lies before the areas: the lines, the doorbells, and the counts of each rank, which share no
// cache line with another's.
std::size_t lines_only(int size) { return 2 * 64 * static_cast<std::size_t>(size); }
std::size_t line_bytes(int size) {
  return rounded_up(lines_only(size) + 64 * static_cast<std::size_t>(size), kPage);
}
std::size_t numbers(int size) { return rounded_up(static_cast<std::size_t>(size), 8); }
std::size_t count_bytes(int size) {
  return rounded_up(2 * static_cast<std::size_t>(size) * numbers(size) * sizeof(std::int64_t), kPage);
}

}  // namespace

Segment::Segment(std::shared_ptr<std::byte> memory, int rank, int size, std::size_t area_bytes,
                 std::optional<int> cores)
    : memory_(std::move(memory)),
      lines_(reinterpret_cast<Line*>(memory_.get())),
      doorbells_(reinterpret_cast<Doorbell*>(memory_.get() + lines_only(size))),
      counts_(reinterpret_cast<std::int64_t*>(memory_.get() + line_bytes(size))),
      areas_(memory_.get() + line_bytes(size) + count_bytes(size)),
      rank_(rank),
      size_(size),
      area_bytes_(area_bytes),
      is_crowded_(AdaptiveWait::is_crowd(size, cores)),
      has_core_each_(cores && size <= *cores) {}

std::size_t Segment::area_bytes(int size, std::size_t limit) {
  constexpr std::size_t kMost = 512 << 10;
  // So that it can be cut into a piece for every rank.
  const std::size_t least = std::max<std::size_t>(16 << 10, static_cast<std::size_t>(size + 1) * 128);
  const std::size_t share = limit / (2 * static_cast<std::size_t>(size));
  return std::clamp(share / kPage * kPage, rounded_up(least, kPage), kMost);
}

std::size_t Segment::bytes(int size, std::size_t area_bytes) {
  return line_bytes(size) + count_bytes(size) + 2 * static_cast<std::size_t>(size) * area_bytes;
}

std::byte* Segment::area(int rank, std::uint64_t step) const {
  return areas_ + (2 * static_cast<std::size_t>(rank) + step % 2) * area_bytes_;
}

bool Segment::all_at(std::uint64_t step) {
  if (seen_ >= step) return true;
  if (asked_ != step) asked_ = step, next_ = 0;
  for (; next_ < size_; ++next_) {
    if (next_ == rank_) continue;
    const std::uint64_t even = line(next_, 0).step.load(std::memory_order_acquire);
    if (even < step && line(next_, 1).step.load(std::memory_order_acquire) < step) return false;
  }
  seen_ = step;
  return true;
}

std::int64_t* Segment::counts(int rank, std::uint64_t step) const {
  return counts_ + (2 * static_cast<std::size_t>(rank) + step % 2) * numbers(size_);
}

void Segment::publish(std::uint64_t step, std::uint64_t call, std::uint64_t word) {
  Line& own = line(rank_, step);
  own.call = call;
  own.word = word;
  WaitTarget::raise(own.step, step, doorbells_[rank_].sleepers);
}

bool Segment::all_are_at(std::uint64_t step, std::uint64_t call) {
  if (asked_ != step) asked_ = step, next_ = 0;
  for (; next_ < size_; ++next_) {
    if (next_ != rank_ && !is_at(next_, step, call)) return false;
  }
  seen_ = std::max(seen_, step);
  return true;
}

}  // namespace altorch::shm
