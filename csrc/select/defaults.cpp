// SPDX-License-Identifier: BSD-3-Clause
#include "select/defaults.h"

#include <array>
#include <bit>
#include <limits>

#include "base/size_text.h"
#include "select/sizes.h"

namespace altorch {
namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();

// Up to so many ranks, every rank talks to all others at once: a message costs less than another
// wait for the peers. Among ranks that share cores, such a wait is a turn of the scheduler. With
// more ranks, the number of messages counts.
constexpr int kFewRanks = 8;
// Up to so many bytes into a rank, sending all data to all ranks beats two waits with less data.
// For a broadcast, the limit is for the bytes out of the root.
constexpr std::int64_t kOneShot = 128 * kKiB, kOneShotBroadcast = kMiB;

enum class Only : std::uint8_t { kAll, kHalfTypes, kPowersOfTwo, kUneven };

// Serves calls of up to so many ranks, bytes of payload, and bytes from one rank to all others.
struct Row {
  OpKind kind;
  std::string_view algorithm;
  const char* reason;
  int ranks = kAnyNumber;
  std::int64_t bytes = kUnlimited;
  std::int64_t sent = kUnlimited;
  Only only = Only::kAll;
};

// The first that serves is taken; the last of each kind serves all. Where the number of rounds
// decides below a size, the bytes sent decide above it. Every limit was set by
// benchmarks/cpu_collectives.py.
constexpr Row kDefaultRows[] = {
    {OpKind::kAllReduce, "one_shot", "small, few ranks: one wait for the peers", kFewRanks, kUnlimited,
     kOneShot},
    {OpKind::kAllReduce, "pairwise", "few ranks: two waits for the peers, each byte reduced once", kFewRanks},
    {OpKind::kAllReduce, "recursive_doubling", "small: fewest rounds", kAnyNumber, 64 * kKiB},
    // Other algorithms would carry them as float32.
    {.kind = OpKind::kAllReduce,
     .algorithm = "pairwise",
     .reason = "half types: half the bytes on the wire",
     .only = Only::kHalfTypes},
    {.kind = OpKind::kAllReduce,
     .algorithm = "rabenseifner",
     .reason = "medium: few rounds, each byte reduced once",
     .bytes = 4 * kMiB,
     .only = Only::kPowersOfTwo},
    {OpKind::kAllReduce, "ring", "large: every link busy, reduction overlaps transfer"},

    {OpKind::kReduce, "linear", "small, few ranks: one wait for the peers", kFewRanks, kUnlimited, kOneShot},
    {OpKind::kReduce, "binomial", "small: fewest rounds", kAnyNumber, 64 * kKiB},
    {OpKind::kReduce, "pairwise", "large: each byte reduced once"},

    {OpKind::kBroadcast, "linear", "two ranks: one wait for the root", 2},
    {OpKind::kBroadcast, "linear", "small, few ranks: one wait for the root", kFewRanks, kUnlimited,
     kOneShotBroadcast},
    {OpKind::kBroadcast, "pairwise", "large, few ranks: the root sends each byte once, two waits", kFewRanks},
    {OpKind::kBroadcast, "binomial", "small: fewest rounds", kAnyNumber, 64 * kKiB},
    {OpKind::kBroadcast, "scatter_all_gather", "large: the root sends each byte once"},

    {OpKind::kAllGather, "linear", "few ranks: one wait for the peers, no copies", kFewRanks},
    {.kind = OpKind::kAllGather, .algorithm = "ring", .reason = "uneven blocks", .only = Only::kUneven},
    {OpKind::kAllGather, "bruck", "small: fewest rounds", kAnyNumber, 8 * kKiB},
    {OpKind::kAllGather, "ring", "large: neighbours only, no copies"},

    {OpKind::kReduceScatter, "pairwise", "each byte crosses once"},

    {OpKind::kAllToAll, "linear", "few ranks: one wait for the peers", kFewRanks},
    // Not bruck for small blocks: it takes even ones only, and a rank whose own blocks are of one
    // size does not know whether all are.
    {OpKind::kAllToAll, "pairwise", "each byte crosses once"},

    {OpKind::kGather, "linear", "only the root knows the blocks"},
    {OpKind::kScatter, "linear", "only the root knows the blocks"},

    {OpKind::kScan, "recursive_doubling", "fewest rounds"},
    {OpKind::kExscan, "recursive_doubling", "fewest rounds"},

    {OpKind::kBarrier, "linear", "few ranks: one wait for the peers", kFewRanks},
    {OpKind::kBarrier, "dissemination", "fewest rounds"},
};

bool serves(const Row& row, const Operation& operation, int size, std::int64_t bytes) {
  if (row.kind != operation.kind || size > row.ranks || bytes > row.bytes) return false;
  if (row.sent != kUnlimited && (size - 1) * bytes > row.sent) return false;
  switch (row.only) {
    case Only::kAll:
      return true;
    case Only::kHalfTypes:
      return is_half(operation.dtype);
    case Only::kPowersOfTwo:
      return std::has_single_bit(static_cast<unsigned>(size));
    case Only::kUneven:
      return operation.uneven();
  }
  return false;
}

// Found by name once.
const std::array<const Algorithm*, std::size(kDefaultRows)>& algorithms_of_rows() {
  static const auto found = [] {
    std::array<const Algorithm*, std::size(kDefaultRows)> all{};
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = find_algorithm(kDefaultRows[i].kind, kDefaultRows[i].algorithm);
    return all;
  }();
  return found;
}

std::string calls_of(const Row& row) {
  std::string text;
  const auto add = [&](const std::string& clause) { text += (text.empty() ? "" : ", ") + clause; };
  if (row.ranks != kAnyNumber) add("up to " + std::to_string(row.ranks) + " ranks");
  if (row.bytes != kUnlimited) add("up to " + size_text(row.bytes));
  if (row.sent != kUnlimited) add("up to " + size_text(row.sent) + " from a rank to all others");
  switch (row.only) {
    case Only::kAll:
      break;
    case Only::kHalfTypes:
      add("half types");
      break;
    case Only::kPowersOfTwo:
      add("a power of two of ranks");
      break;
    case Only::kUneven:
      add("uneven blocks");
      break;
  }
  return text.empty() ? "all other calls" : text;
}

}  // namespace

std::string default_for(const Algorithm& algorithm) {
  std::string text;
  for (const Row& row : kDefaultRows) {
    if (row.kind == algorithm.kind && row.algorithm == algorithm.name)
      text += (text.empty() ? "for " : "; for ") + calls_of(row);
  }
  return text.empty() ? "only where ALTORCH_ROUTE names it" : text;
}

Route default_route(const Operation& operation, int size, std::int64_t bytes) {
  const auto& algorithms = algorithms_of_rows();
  for (std::size_t i = 0; i < std::size(kDefaultRows); ++i) {
    if (serves(kDefaultRows[i], operation, size, bytes))
      return {algorithms[i]->name, kDefaultRows[i].reason, algorithms[i]};
  }
  return {"message", "a message"};
}

}  // namespace altorch
