// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/pattern.h"

#include <array>

#include "transports/native_collectives.h"

namespace altorch::shm {
namespace {

// Up to so many bytes in the vectors of all peers, all_reduce takes one step: each rank reads and
// reduces whole vectors. Above them two steps: each rank reduces its slice. kReadWithCores: more
// than two ranks, with a core each; kRead: two ranks, or fewer cores, where a second wait costs
// more. us for one and for two steps, medians of `altorch bench all_reduce --against
// al:shm/one_step,al:shm/two_steps`, on 16 cores of an Intel Xeon, and on 2:
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
  return bytes_of(call) > place.area_bytes ? "the vector is larger than the area of a rank" : nullptr;
}
const char* large(const Call& call, const Place& place) {
  return (place.ranks - 1) * bytes_of(call) > (place.ranks > 2 && place.core_each ? kReadWithCores : kRead)
             ? "two steps are faster at this size"
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

// The smallest block, in bytes, that is copied once, from its owner's memory. On 32 cores that made
// all_to_all 1.2 to 2.5 times as fast with 2 to 16 ranks, scatter 1.3 to 5.9 times (64 KiB to 16
// MiB in all).
constexpr std::int64_t kInPlace = 32 << 10;
// The same of a scatter among more than two ranks: all of them read the root's memory, and wait for
// its page tables. Below this size it was 0.7 to 1.0 times as fast.
constexpr std::int64_t kInPlaceOfOne = 256 << 10;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// Among more than two ranks, several would read the same blocks of an all_gather, and the root of a
// gather all blocks alone: with 4 ranks that takes as long, or longer.
bool reads_all(const Call& call, const Place& place) {
  return place.ranks > 2 && (call.kind == OpKind::kAllGather || call.kind == OpKind::kGather);
}
std::int64_t least_in_place(const Call& call, const Place& place) {
  return (call.kind == OpKind::kScatter && place.ranks > 2 ? kInPlaceOfOne : kInPlace) /
         static_cast<std::int64_t>(size_of(call.dtype));
}

constexpr BlockProtocol kBlocks[] = {
    {.id = BlockMove::kInPlace,
     .name = "in_place",
     .unsupported_reason = [](const Call&, const Place& place) -> const char* {
       return place.reads ? nullptr : "ranks may not read each other's memory";
     },
     .passed_over_reason = [](const Call& call, const Place& place) -> const char* {
       if (reads_all(call, place)) return "ranks that read the same memory wait for each other";
       return longest_block(call) < least_in_place(call, place)
                  ? "blocks of this size are faster through the areas"
                  : nullptr;
     },
     .steps = [](const Call&, const Place&) -> std::string {
       return "every rank reads its blocks where they are, once";
     }},
    {.id = BlockMove::kAreas,
     .name = "areas",
     .unsupported_reason = [](const Call&, const Place&) -> const char* { return nullptr; },
     .steps = [](const Call& call, const Place& place) -> std::string {
       return pattern_of(call, place, {}).summary;
     }},
};

constexpr std::array<std::string_view, 2> kReductionNames{kReductions[0].name, kReductions[1].name},
    kBlockNames{kBlocks[0].name, kBlocks[1].name};

bool reduces_vectors(OpKind kind) { return kind == OpKind::kAllReduce || kind == OpKind::kReduce; }
bool moves_blocks(OpKind kind) { return has_blocks(kind) && !reduces(kind); }

}  // namespace

std::span<const ReductionProtocol> reduction_protocols() { return kReductions; }
std::span<const BlockProtocol> block_protocols() { return kBlocks; }

std::int64_t in_place_from(const Call& call, const Place& place, std::string_view asked) {
  if (!moves_blocks(call.kind) || !place.reads || asked == kBlocks[1].name) return kNever;
  if (asked == kBlocks[0].name) return 1;
  return reads_all(call, place) ? kNever : least_in_place(call, place);
}

ExplainedProtocol explain_pattern(const Call& call, const Place& place, std::string_view asked) {
  if (reduces_vectors(call.kind)) return explain_protocol(reduction_protocols(), call, place, asked);
  if (moves_blocks(call.kind)) return explain_protocol(block_protocols(), call, place, asked);
  return {.steps = pattern_of(call, place, asked).summary};
}

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

namespace altorch {

std::span<const std::string_view> shm_protocols(OpKind kind) {
  if (shm::reduces_vectors(kind)) return shm::kReductionNames;
  return shm::moves_blocks(kind) ? std::span<const std::string_view>(shm::kBlockNames)
                                 : std::span<const std::string_view>();
}

}  // namespace altorch
