// SPDX-License-Identifier: BSD-3-Clause
// The kinds of operation: a row for each. Names are torch.distributed's.
#pragma once

#include <cstdint>

#include "base/enum_table.h"

namespace altorch {

// The order is part of the wire fingerprint, which ranks of one version compare. kOneSided stays
// last: kRoutedKindCount excludes it.
enum class OpKind : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier,
  kSend,
  kReceive,
  kScan,  // MPI's names: rank r gets the reduction of ranks 0 to r, or to r - 1
  kExscan,
  kOneSided,  // any access to a window (transports/window.h)
};
inline constexpr int kOpKindCount = 14;
inline constexpr int kRoutedKindCount = kOpKindCount - 1;  // a window chooses its way when it is made
template <>
inline constexpr int kCountOf<OpKind> = kOpKindCount;

// What a buffer of a call holds on a rank.
enum class Holds : std::uint8_t {
  kNothing,
  kVector,     // `count` elements, the same count on every rank
  kOwnBlock,   // the block of this rank
  kAllBlocks,  // a block for each rank, side by side
};

// Which ranks contribute to a rank's output.
enum class Contributors : std::uint8_t { kAll, kUpToSelf, kBelowSelf };

struct OpKindTraits {
  const char* name;
  Holds input = Holds::kNothing, output = Holds::kNothing;
  bool input_at_root = false, output_at_root = false;  // only the root supplies data, or receives it
  bool reduces = false;  // contributions are combined; algorithm and route decide in which order
  bool message = false;  // between two ranks
  bool one_sided = false;
  Contributors contributors = Contributors::kAll;
};

inline constexpr EnumTable<OpKind, OpKindTraits> kOpKinds({
    {OpKind::kAllReduce,
     {.name = "all_reduce", .input = Holds::kVector, .output = Holds::kVector, .reduces = true}},
    {OpKind::kReduce,
     {.name = "reduce",
      .input = Holds::kVector,
      .output = Holds::kVector,
      .output_at_root = true,
      .reduces = true}},
    {OpKind::kBroadcast,
     {.name = "broadcast", .input = Holds::kVector, .output = Holds::kVector, .input_at_root = true}},
    {OpKind::kAllGather, {.name = "all_gather", .input = Holds::kOwnBlock, .output = Holds::kAllBlocks}},
    {OpKind::kReduceScatter,
     {.name = "reduce_scatter", .input = Holds::kAllBlocks, .output = Holds::kOwnBlock, .reduces = true}},
    {OpKind::kAllToAll, {.name = "all_to_all", .input = Holds::kAllBlocks, .output = Holds::kAllBlocks}},
    {OpKind::kGather,
     {.name = "gather", .input = Holds::kOwnBlock, .output = Holds::kAllBlocks, .output_at_root = true}},
    {OpKind::kScatter,
     {.name = "scatter", .input = Holds::kAllBlocks, .output = Holds::kOwnBlock, .input_at_root = true}},
    {OpKind::kBarrier, {.name = "barrier"}},
    {OpKind::kSend, {.name = "send", .input = Holds::kVector, .message = true}},
    {OpKind::kReceive, {.name = "recv", .output = Holds::kVector, .message = true}},
    {OpKind::kScan,
     {.name = "scan",
      .input = Holds::kVector,
      .output = Holds::kVector,
      .reduces = true,
      .contributors = Contributors::kUpToSelf}},
    {OpKind::kExscan,
     {.name = "exscan",
      .input = Holds::kVector,
      .output = Holds::kVector,
      .reduces = true,
      .contributors = Contributors::kBelowSelf}},
    {OpKind::kOneSided, {.name = "window", .one_sided = true}},
});
constexpr const char* name_of(OpKind kind) { return kOpKinds[kind].name; }
constexpr bool reduces(OpKind kind) { return kOpKinds[kind].reduces; }
constexpr bool is_rooted(OpKind kind) {
  return kOpKinds[kind].input_at_root || kOpKinds[kind].output_at_root;
}
// Whether one of the buffers holds a block for each rank; otherwise both hold one vector.
constexpr bool has_blocks(OpKind kind) {
  return kOpKinds[kind].input == Holds::kAllBlocks || kOpKinds[kind].output == Holds::kAllBlocks;
}
// Whether each rank gets another result, of the ranks up to it or below it.
constexpr bool is_scan(OpKind kind) { return kOpKinds[kind].contributors != Contributors::kAll; }
constexpr bool is_message(OpKind kind) { return kOpKinds[kind].message; }
constexpr bool is_one_sided(OpKind kind) { return kOpKinds[kind].one_sided; }
constexpr bool is_collective(OpKind kind) { return !kOpKinds[kind].message && !kOpKinds[kind].one_sided; }

}  // namespace altorch
