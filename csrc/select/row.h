// SPDX-License-Identifier: BSD-3-Clause
// A row of the score table (table.h): which calls it is for, what carries them, and why.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/operation.h"
#include "select/sizes.h"
#include "select/world.h"

namespace altorch {

// What a row chooses for.
enum class On : std::uint8_t {
  kHost,        // a collective on host memory
  kGpu,         // an operation on CUDA tensors
  kHostWindow,  // one-sided access to the host memory of other ranks
  kGpuWindow,   // one-sided access to the GPU memory of other ranks
  kLinks,       // messages between host memories: chosen once, when a group is made
};

// Which of its calls, or groups, a row is for.
enum class Only : std::uint8_t {
  kAll,
  kNamed,  // where ALTORCH_ROUTE names it
  kHalfTypes,
  kExact,        // sums that are rounded once
  kPowersOfTwo,  // the number of ranks is a power of two
  kUneven,       // blocks of different sizes
  kLinked,       // NVLink between all pairs of GPUs: World::linked
  kCoResident,   // kernels of different ranks run at the same time: World::co_resident()
  kSharedGpus,   // ranks share a GPU without MPS: not World::co_resident()
};

// A set of operations, a bit for each.
using OpKinds = std::uint64_t;
template <class... Kinds>
constexpr OpKinds kinds_of(Kinds... kinds) {
  return (... | (OpKinds{1} << static_cast<int>(kinds)));
}
inline constexpr OpKinds kAllKinds = ~OpKinds{0};

struct Limits {
  Only only = Only::kAll;
  int fewest_ranks = 1, most_ranks = std::numeric_limits<int>::max();
  // Upper limits, inclusive, in the bytes of size_in_table(). `to_all` is divided by ranks - 1 and
  // rounded down to whole KiB: it limits what one rank sends to all peers together.
  std::int64_t bytes = kUnlimited, to_all = kUnlimited;
  // all_to_all on GPUs: the row carries only blocks that are small in both directions; NCCL carries
  // the others.
  bool in_pairs = false;
};

struct Row {
  On on;
  OpKinds kinds;
  // As in ALTORCH_ROUTE and in statistics: an algorithm, native collectives, a route of CUDA
  // tensors (gpu_route.h), a way of windows (windows/row.h), a transport.
  std::string_view carrier;
  const char* reason;  // why it is taken, one clause
  Limits limits = {};
  const char* needs = "";      // shown where the group lacks the carrier: what that is for, one clause
  const char* benchmark = "";  // what set the limits: a module of benchmarks/

  // Pure functions that do not allocate; any thread. For rows on kGpu, `world` comes from
  // World::of().
  // Whether the row matches calls of this kind in this group, at some size. Its carrier may still
  // not support the call: see unsupported_reason() in decide.h.
  bool is_for(const Operation& operation, const World& world) const;
  // Whether it also matches the size of this call.
  bool serves(const Operation& operation, const World& world) const;
  // The largest size that it matches, in the bytes of size_in_table(); kUnlimited: any.
  std::int64_t most_bytes(int ranks) const;
  // Whether it matches operations of every kind, without a rule of ALTORCH_ROUTE.
  bool is_general() const { return kinds == kAllKinds && limits.only != Only::kNamed; }
};

// The bytes that Limits compare. Host memory: payload_bytes(). CUDA tensors: the bytes of a rank's
// vector, or of all its blocks; 0 for uneven blocks and messages. Of CUDA tensors, size 0 matches
// only rows without a limit of size.
std::int64_t size_in_table(On on, const Operation& operation, int ranks);

// For people, a clause: "up to 8 ranks, up to 64 KiB".
std::string calls_of(const Row& row);

}  // namespace altorch
