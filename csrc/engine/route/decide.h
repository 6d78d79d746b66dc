// Which route operations on CUDA tensors take: a pure function of the call, of what the ranks know alike, and
// of ALTORCH_ROUTE. Execution (gpu_routes.h) and `altorch explain` go through the same candidates in the same
// order and take the first that serves, so that what is explained is what happens.
//
// Small collectives take another one before its turn: host_staged beside NCCL, since the host needs half of the time
// for it (of an all_to_all the blocks of those pairs of ranks that have little for each other: small_pairs.h), and
// host_relay where ranks share a GPU, since processes take turns on it, and flags wait for each turn.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

#include "engine/operation.h"
#include "engine/route/table.h"

namespace altorch {

struct Candidate {
  const GpuRouteRow* row = nullptr;
  bool in_pairs = false;    // small blocks by it, the others by NCCL; where a rank has any
  bool only_small = false;  // comes before its turn: no loss when it does not serve
  const char* reason = "";  // why it is taken, one clause
};

// In the order in which they are asked. Allocates nothing.
class Candidates {
 public:
  // `asked`: the route that ALTORCH_ROUTE names for the first operation, or nothing.
  Candidates(std::span<const Operation> operations, const World& world, std::string_view asked);

  const Candidate* begin() const { return all_.data(); }
  const Candidate* end() const { return all_.data() + count_; }

 private:
  void add(const Candidate& candidate) { all_[count_++] = candidate; }

  std::array<Candidate, 8> all_;  // a route may come twice, small_pairs.h once more
  std::size_t count_ = 0;
};

// Why a route cannot carry these operations, as a clause, or nothing. `capturing`: into a CUDA graph.
std::optional<std::string> obstacle(const GpuRouteRow& row, std::span<const Operation> operations,
                                    const World& world, bool capturing);

}  // namespace altorch
