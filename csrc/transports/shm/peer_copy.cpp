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

// A copy that another thread interrupts is slow, too, but not often two in a row.
constexpr int kSlowInARow = 2;
// The more often stores were slow again, the rarer they are tried.
constexpr int kFewestStreams = 8, kMostStreams = 256;

#if defined(__x86_64__)
constexpr bool kCanStream = true;

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
  _mm_sfence();  // a release holds back ordinary stores only
}
#else
constexpr bool kCanStream = false;

void stream(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
#endif

}  // namespace

void PeerCopy::note(std::int64_t bytes, std::int64_t nanoseconds) {
  if (!kCanStream || bytes < kLeast) return;
  if (1000 * nanoseconds <= slow_from_ * bytes) {
    slow_ = streams_ = 0;
    return;
  }
  if (++slow_ < kSlowInARow) return;
  streams_ = std::clamp(2 * streams_, kFewestStreams, kMostStreams);
  left_ = streams_;
}

void PeerCopy::copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes <= 0) return;
  if (streams(bytes)) {
    --left_;
    return stream(to, from, static_cast<std::size_t>(bytes));
  }
  if (bytes < kLeast) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  const auto began = std::chrono::steady_clock::now();
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  note(bytes, (std::chrono::steady_clock::now() - began).count());
}

}  // namespace altorch::shm
