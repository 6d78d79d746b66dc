// SPDX-License-Identifier: BSD-3-Clause
// Up to which sizes a route carries a call on CUDA tensors although another one comes before it in
// table.h, as rows.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/operation.h"
#include "select/row.h"
#include "select/sizes.h"
#include "select/world.h"

namespace altorch {

// A set of operations, a bit for each.
using OpKinds = std::uint64_t;
template <class... Kinds>
constexpr OpKinds kinds_of(Kinds... kinds) {
  return (... | (OpKinds{1} << static_cast<int>(kinds)));
}

enum class Gpus : std::uint8_t {
  kAny,
  kLinked,      // each to every other, by NVLink: World::linked
  kCoResident,  // a kernel of one rank may wait for one of another: World::co_resident()
  kShared,      // the opposite
};

// A row holds for groups of at least two ranks.
struct GpuDefaultRow {
  const GpuRouteRow* route;
  const char* reason;  // one clause
  OpKinds kinds;
  Gpus gpus = Gpus::kAny;
  int fewest_ranks = 2, most_ranks = std::numeric_limits<int>::max();
  // The most bytes that a rank sends to one other rank, and, in whole KiB each, to all others. Both
  // are for calls of which all ranks send the same: elements_sent_alike() in base/shape.h.
  std::int64_t bytes = kUnlimited, to_all = kUnlimited;
  // It carries the blocks of an all_to_all that are small in both directions, and NCCL the others.
  bool in_pairs = false;

  // Thread rules: pure functions, which do not allocate; any thread.
  // Whether the row is for such calls in such a group, of some size.
  bool is_for(const Operation& operation, const World& world) const;
  // And whether it is for this size. The route may be unable to carry the call.
  bool serves(const Operation& operation, const World& world) const;
  // The most bytes that a rank sends to one other rank, of calls that the row is for.
  std::int64_t most_sent(const World& world) const;
};

// The first row that serves, and whose route can carry the call, decides.
std::span<const GpuDefaultRow> gpu_default_rows();

}  // namespace altorch
