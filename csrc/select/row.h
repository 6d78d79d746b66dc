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
  kGpuWindow,   // the same to memory of their GPUs
  kLinks,       // messages between host memories: chosen once, when a group is made
};

// Which of its calls, or groups, a row is for.
enum class Only : std::uint8_t {
  kAll,
  kNamed,  // where ALTORCH_ROUTE names it
  kHalfTypes,
  kPowersOfTwo,  // of ranks
  kUneven,       // blocks
  kLinked,       // each GPU to every other, by NVLink: World::linked
  kCoResident,   // a kernel of one rank may wait for one of another: World::co_resident()
  kSharedGpus,   // the opposite
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
  // The most bytes as size_in_table() counts them; and of these times the number of the other
  // ranks, in whole KiB each.
  std::int64_t bytes = kUnlimited, to_all = kUnlimited;
  // Of an all_to_all, the blocks that are small in both directions; NCCL carries the others.
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
  const char* needs = "";      // where it is not there, what it is for, one clause
  const char* benchmark = "";  // what set the limits: a module of benchmarks/

  // Thread rules: pure functions, which do not allocate; any thread.
  // Whether it is for such calls of some size in such a group. What carries them may be unable to.
  bool is_for(const Operation& operation, const World& world) const;
  // Whether it is for this one.
  bool serves(const Operation& operation, const World& world) const;
  std::int64_t most_bytes(int ranks) const;
  // Whether ALTORCH_ROUTE need not name it, and it is for operations of every kind.
  bool is_general() const { return kinds == kAllKinds && limits.only != Only::kNamed; }
};

// On host memory payload_bytes(). On CUDA tensors the bytes of a rank's vector, or of all its
// blocks; 0 for uneven ones and for messages, which no limit serves.
std::int64_t size_in_table(On on, const Operation& operation, int ranks);

// For people, a clause: "up to 8 ranks, up to 64 KiB".
std::string calls_of(const Row& row);

}  // namespace altorch
