// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/pattern.h"

namespace altorch::shm {
namespace {

// Up to so many bytes of all other ranks together, every rank reads and reduces all of a vector, in
// one step; beyond, its slice, in two. kReadWithCores: of more than two ranks with a core each;
// kRead: of two, and with fewer cores, where another wait costs more. us for one and for two steps,
// medians of `altorch bench all_reduce --against al:shm/one_step,al:shm/two_steps`, on 16 cores of
// an Intel Xeon, and on 2:
//   2 ranks            64 KiB  19.6  24.0    128 KiB  31.4  31.6
//   4 ranks            16 KiB  20.5  20.5     32 KiB  29.1  26.1
//   8 ranks             4 KiB  15.3  15.9      8 KiB  19.8  17.4
//   16 ranks            2 KiB  16.8  16.8      4 KiB  20.5  16.6
//   4 ranks, 2 cores   32 KiB  49    54      128 KiB  143   118
constexpr std::int64_t kRead = 128 << 10, kReadWithCores = 48 << 10;

std::int64_t bytes_of(const Call& call) {
  return call.count * static_cast<std::int64_t>(size_of(call.dtype));
}
const char* larger_than_an_area(const Call& call, const Place& place) {
  return bytes_of(call) > place.area_bytes ? "the vector is larger than what a rank shows in one step"
                                           : nullptr;
}
const char* large(const Call& call, const Place& place) {
  return (place.ranks - 1) * bytes_of(call) > (place.ranks > 2 && place.core_each ? kReadWithCores : kRead)
             ? "it is faster that each rank reduces a slice of so much"
             : nullptr;
}

const Pattern& in_one_step(const Call& call) {
  return call.kind == OpKind::kAllReduce ? patterns::kSmallAllReduce : patterns::kSmallReduce;
}

constexpr ReductionProtocol kReductions[] = {
    {.id = ReductionSteps::kOne,
     .name = "one_step",
     .unsupported_reason = larger_than_an_area,
     .passed_over_reason = large,
     .steps = [](const Call& call, const Place&) -> std::string { return in_one_step(call).summary; }},
    {.id = ReductionSteps::kTwo,
     .name = "two_steps",
     .unsupported_reason = [](const Call&, const Place&) -> const char* { return nullptr; },
     .steps = [](const Call&, const Place&) -> std::string { return patterns::kLargeReduction.summary; }},
};

}  // namespace

std::span<const ReductionProtocol> reduction_protocols() { return kReductions; }

const Pattern& pattern_of(const Call& call, const Place& place, std::string_view asked) {
  switch (call.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
      if (protocol_of(reduction_protocols(), call, place, asked).id == ReductionSteps::kOne)
        return in_one_step(call);
      return patterns::kLargeReduction;
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
