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
  // The most bytes of a rank's vector, or of all its blocks: even_elements() in base/shape.h. And,
  // in whole KiB each, of that times the number of the other ranks.
  std::int64_t bytes = kUnlimited, to_all = kUnlimited;
  // It carries the blocks of an all_to_all that are small in both directions, and NCCL the others.
  bool in_pairs = false;

  // Thread rules: pure functions, which do not allocate; any thread.
  // Whether it serves such calls of some size in such a group.
  bool applies_to_group(const Operation& operation, const World& world) const;
  // Whether it serves this one. The route may be unable to carry it.
  bool serves(const Operation& operation, const World& world) const;
  // The most bytes of a rank's vector, or of all its blocks, that it serves.
  std::int64_t most_sent(const World& world) const;
};

// The first row that serves, and whose route can carry the call, decides.
std::span<const GpuDefaultRow> gpu_default_rows();

}  // namespace altorch
