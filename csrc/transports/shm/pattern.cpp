// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/pattern.h"

namespace altorch::shm {
namespace {

// Up to so many bytes every rank reduces all of a vector, in one step; beyond, its slice, in two.
constexpr std::int64_t kOneShot = 16 << 10;

}  // namespace

const Pattern& pattern_of(const Call& call) {
  const bool small = call.count * static_cast<std::int64_t>(size_of(call.dtype)) <= kOneShot;
  switch (call.kind) {
    case OpKind::kAllReduce:
      return small ? patterns::kSmallAllReduce : patterns::kLargeReduction;
    case OpKind::kReduce:
      return small ? patterns::kSmallReduce : patterns::kLargeReduction;
    case OpKind::kBroadcast:
      return patterns::kBroadcast;
    case OpKind::kAllGather:
      return patterns::kAllGather;
    case OpKind::kGather:
      return patterns::kGather;
    case OpKind::kScatter:
      return patterns::kScatter;
    case OpKind::kAllToAll:
      return patterns::kAllToAll;
    case OpKind::kReduceScatter:
      return patterns::kReduceScatter;
    case OpKind::kScan:
      return patterns::kScan;
    case OpKind::kExscan:
      return patterns::kExscan;
    case OpKind::kBarrier:
    case OpKind::kSend:
    case OpKind::kReceive:
    case OpKind::kOneSided:
      break;
  }
  return patterns::kBarrier;
}

}  // namespace altorch::shm
