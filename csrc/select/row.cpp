// SPDX-License-Identifier: BSD-3-Clause
#include "select/row.h"

#include <algorithm>
#include <bit>

#include "base/shape.h"
#include "base/size_text.h"
#include "select/gpu_route.h"

namespace altorch {
namespace {

bool holds(Only only, const Operation& operation, const World& world) {
  switch (only) {
    case Only::kAll:
      return true;
    case Only::kNamed:
      return false;
    case Only::kHalfTypes:
      return is_half(operation.dtype);
    case Only::kExact:
      return operation.reduces() && is_exact(operation.op);
    case Only::kPowersOfTwo:
      return std::has_single_bit(static_cast<unsigned>(world.ranks));
    case Only::kUneven:
      return operation.uneven();
    case Only::kLinked:
      return world.linked;
    case Only::kCoResident:
      return world.co_resident();
    case Only::kSharedGpus:
      return !world.co_resident();
  }
  return false;
}

const char* clause_of(Only only) {
  switch (only) {
    case Only::kAll:
      return "";
    case Only::kNamed:
      return "only where ALTORCH_ROUTE names it";
    case Only::kHalfTypes:
      return "half types";
    case Only::kExact:
      return "exact sums";
    case Only::kPowersOfTwo:
      return "a power of two of ranks";
    case Only::kUneven:
      return "uneven blocks";
    case Only::kLinked:
      return "GPUs that NVLink links";
    case Only::kCoResident:
      return "GPUs whose kernels run at the same time";
    case Only::kSharedGpus:
      return "ranks that share a GPU";
  }
  return "";
}

}  // namespace

std::int64_t size_in_table(On on, const Operation& operation, int ranks) {
  if (on == On::kHost) return payload_bytes(operation, ranks);
  return even_elements(operation, ranks) * static_cast<std::int64_t>(size_of(operation.dtype));
}

bool Row::is_for(const Operation& operation, const World& world) const {
  if ((kinds & kinds_of(operation.kind)) == 0 || !holds(limits.only, operation, world)) return false;
  if (limits.in_pairs && world.missing[index_of(gpu_rows::nccl)]) return false;
  return world.ranks >= limits.fewest_ranks && world.ranks <= limits.most_ranks;
}

bool Row::serves(const Operation& operation, const World& world) const {
  if (!is_for(operation, world)) return false;
  const std::int64_t most = most_bytes(world.ranks);
  if (most == kUnlimited) return true;
  const std::int64_t size = size_in_table(on, operation, world.ranks);
  return size <= most && (size > 0 || on == On::kHost);
}

std::int64_t Row::most_bytes(int ranks) const {
  if (limits.to_all == kUnlimited || ranks < 2) return limits.bytes;
  return std::min(limits.bytes, limits.to_all / (ranks - 1) / kKiB * kKiB);
}

std::string calls_of(const Row& row) {
  const Limits& limits = row.limits;
  std::string text;
  const auto add = [&](const std::string& clause) {
    if (!clause.empty()) text += (text.empty() ? "" : ", ") + clause;
  };
  if (limits.most_ranks != Limits{}.most_ranks) add("up to " + std::to_string(limits.most_ranks) + " ranks");
  if (limits.bytes != kUnlimited) add("up to " + size_text(limits.bytes));
  if (limits.to_all != kUnlimited) add("up to " + size_text(limits.to_all) + " from a rank to all others");
  add(clause_of(limits.only));
  return text.empty() ? "all other calls" : text;
}

}  // namespace altorch
