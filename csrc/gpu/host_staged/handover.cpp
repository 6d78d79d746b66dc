// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/handover.h"

#include <algorithm>
#include <cstring>

namespace altorch {
namespace {

constexpr std::size_t kPlace = 64;  // where each begins, for wide copies

}  // namespace

bool Handover::fits(std::size_t used, std::size_t results, std::size_t slot_bytes) {
  return results <= kMost && used + results + kPlace <= slot_bytes;
}

Handover::Handover(std::span<PieceCopy> outputs, std::byte* place, std::uint64_t poison, Gate former)
    : poison_(poison), former_(former) {
  const auto past = reinterpret_cast<std::uintptr_t>(place) % kPlace;
  if (past > 0) place += kPlace - past;
  moves_.reserve(outputs.size());
  for (PieceCopy& output : outputs) {
    moves_.push_back({output.host, place, output.bytes});
    output.host = place;
    place += output.bytes;
  }
}

void Handover::succeed() const {
  for (const Move& move : moves_) std::memcpy(move.to, move.from, move.bytes);
}

void Handover::abort() const {
  if (!former_.open()) return;
  for (const Move& move : moves_) {
    for (std::size_t at = 0; at < move.bytes; at += sizeof poison_)
      std::memcpy(move.to + at, &poison_, std::min(sizeof poison_, move.bytes - at));
  }
}

}  // namespace altorch
