// SPDX-License-Identifier: BSD-3-Clause
// The kinds of operation: a row for each. Names are torch.distributed's.
#pragma once

#include <cstdint>

#include "base/enum_table.h"

namespace altorch {

// The order is part of the wire fingerprint: append, never reorder.
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
  kOneSided,  // any access to a window (transports/window.h)
};
inline constexpr int kOpKindCount = 12;
inline constexpr int kRoutedKindCount = kOpKindCount - 1;  // a window chooses its way when it is made
template <>
inline constexpr int kCountOf<OpKind> = kOpKindCount;

struct OpKindTraits {
  const char* name;
  bool reduces = false;
  bool rooted = false;   // one rank has a part of its own
  bool blocks = false;   // one of the buffers holds a block for each rank; otherwise both hold one vector
  bool message = false;  // between two ranks
  bool one_sided = false;
};

inline constexpr EnumTable<OpKind, OpKindTraits> kOpKinds({
    {OpKind::kAllReduce, {.name = "all_reduce", .reduces = true}},
    {OpKind::kReduce, {.name = "reduce", .reduces = true, .rooted = true}},
    {OpKind::kBroadcast, {.name = "broadcast", .rooted = true}},
    {OpKind::kAllGather, {.name = "all_gather", .blocks = true}},
    {OpKind::kReduceScatter, {.name = "reduce_scatter", .reduces = true, .blocks = true}},
    {OpKind::kAllToAll, {.name = "all_to_all", .blocks = true}},
    {OpKind::kGather, {.name = "gather", .rooted = true, .blocks = true}},
    {OpKind::kScatter, {.name = "scatter", .rooted = true, .blocks = true}},
    {OpKind::kBarrier, {.name = "barrier"}},
    {OpKind::kSend, {.name = "send", .message = true}},
    {OpKind::kReceive, {.name = "recv", .message = true}},
    {OpKind::kOneSided, {.name = "window", .one_sided = true}},
});
constexpr const char* name_of(OpKind kind) { return kOpKinds[kind].name; }
constexpr bool reduces(OpKind kind) { return kOpKinds[kind].reduces; }
constexpr bool is_rooted(OpKind kind) { return kOpKinds[kind].rooted; }
constexpr bool is_message(OpKind kind) { return kOpKinds[kind].message; }
constexpr bool is_one_sided(OpKind kind) { return kOpKinds[kind].one_sided; }
constexpr bool is_collective(OpKind kind) { return !kOpKinds[kind].message && !kOpKinds[kind].one_sided; }

}  // namespace altorch
