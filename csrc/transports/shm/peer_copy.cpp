// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/peer_copy.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace altorch::shm {
namespace {

using Clock = std::chrono::steady_clock;

// A trial that another thread interrupts is slow, too, but not often two in a row.
constexpr int kSlowInARow = 2;
constexpr int kStreams = 16;  // copies between two trials
constexpr int kPause = -16;   // trials to come, after streaming that was slow too

std::int64_t picoseconds_a_byte(std::int64_t bytes, std::int64_t nanoseconds) {
  return 1000 * nanoseconds / bytes;
}
std::int64_t nanoseconds_since(Clock::time_point began) {
  return std::chrono::nanoseconds(Clock::now() - began).count();
}

#if defined(__x86_64__)
constexpr bool kCanStream = true;

// Waits for the stores themselves: a core goes on while about 4 KiB of them wait for their lines.
void wait_for_stores() { _mm_mfence(); }

void stream(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  auto* into = static_cast<std::byte*>(to);
  const auto* of = static_cast<const std::byte*>(from);
  const std::size_t before = std::min(bytes, -reinterpret_cast<std::uintptr_t>(into) % kLine);
  std::memcpy(into, of, before);
  std::size_t done = before;
  for (; done + kLine <= bytes; done += kLine) {
    for (std::size_t i = done; i < done + kLine; i += sizeof(__m128i)) {
      const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(of + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(into + i), part);
    }
  }
  std::memcpy(into + done, of + done, bytes - done);
  _mm_sfence();  // a release store does not order streaming stores
}
#else
constexpr bool kCanStream = false;

void wait_for_stores() {}

void stream(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

}  // namespace

void PeerCopy::note(std::int64_t bytes, std::int64_t nanoseconds) {
  if (picoseconds_a_byte(bytes, nanoseconds) <= slow_from_) {
    slow_ = 0;
  } else if (slow_ + 1 < kSlowInARow) {
    ++slow_;
  } else {
    left_ = kStreams;
  }
}

void PeerCopy::note_streamed(std::int64_t bytes, std::int64_t nanoseconds) {
  if (picoseconds_a_byte(bytes, nanoseconds) <= slow_from_) return;
  left_ = 0;
  slow_ = kPause;
}

void PeerCopy::copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes <= 0) return;
  if (!kCanStream || bytes < kLeast) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  auto* into = static_cast<std::byte*>(to);
  const auto* of = static_cast<const std::byte*>(from);
  std::int64_t done = 0;
  if (left_ == 0) {
    const auto began = Clock::now();
    std::memcpy(into, of, kLeast);
    wait_for_stores();
    note(kLeast, nanoseconds_since(began));
    done = kLeast;
  }
  const auto rest = static_cast<std::size_t>(bytes - done);
  if (left_ == 0) {
    std::memcpy(into + done, of + done, rest);
  } else if (left_-- == kStreams) {
    const auto began = Clock::now();
    stream(into + done, of + done, rest);
    if (rest >= kLeast) note_streamed(static_cast<std::int64_t>(rest), nanoseconds_since(began));
  } else {
    stream(into, of, rest);
  }
}

}  // namespace altorch::shm
