// SPDX-License-Identifier: BSD-3-Clause
// ALTORCH_DETERMINISTIC=exact, and `deterministic` of altorch.Options: the sums of a group are
// exact, and rounded once. docs/exact.md.
#pragma once

#include <optional>
#include <string>

#include "base/env.h"
#include "base/error.h"
#include "base/op_kind.h"
#include "base/reduce_op.h"

namespace altorch {

inline constexpr const char* kExactMode = "exact";

inline bool exact_setting() { return setting("ALTORCH_DETERMINISTIC") == kExactMode; }

// Of Options. Throws Error(kInvalidArgument) for another word.
inline void check_deterministic_option(const std::string& word) {
  if (word == kExactMode) return;
  throw Error(
      ErrorKind::kInvalidArgument,
      "deterministic is '" + word +
          "', and may be 'exact' or None; for the order of the ranks, which holds for all groups, set "
          "ALTORCH_DETERMINISTIC=1");
}

// Why a group of so many ranks has no exact sums, or nothing.
inline std::optional<Error> exact_unsupported_reason(int ranks) {
  if (ranks <= kMostExactRanks) return std::nullopt;
  return Error(
      ErrorKind::kInvalidArgument,
      "exact sums (ALTORCH_DETERMINISTIC=exact, or deterministic='exact' of altorch.Options) are for "
      "groups of up to " +
          std::to_string(kMostExactRanks) + " ranks, and this one has " + std::to_string(ranks));
}

// What a reduction becomes in a group whose sums are exact. Throws Error(kUnsupported) where its
// result would depend on the order of the ranks.
inline ReduceOp exact_op_for(OpKind kind, ReduceOp op, DType dtype) {
  const bool rounds = is_floating(dtype) || is_complex(dtype);
  const BinaryOp binary = kReduceOps[op].of_numbers;
  if (!rounds || binary == BinaryOp::kMin || binary == BinaryOp::kMax || is_exact(op)) return op;
  const bool whole = kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
  if (whole && is_floating(dtype)) {
    if (op == ReduceOp::kSum) return ReduceOp::kExactSum;
    if (op == ReduceOp::kAvg) return ReduceOp::kExactAvg;
  }
  const char* const instead = whole && is_complex(dtype) ? "pass torch.view_as_real(tensor)"
                              : whole && op == ReduceOp::kPremulSum
                                  ? "multiply the tensor before, and take SUM"
                                  : "use a group without that mode";
  throw Error(
      ErrorKind::kUnsupported,
      std::string(name_of(op)) + " of " + name_of(dtype) + " by " + name_of(kind) +
          " would depend on the order of the ranks. This group's sums are exact "
          "(ALTORCH_DETERMINISTIC=exact, or deterministic='exact' of altorch.Options), which serves SUM "
          "and AVG of real types by all_reduce, reduce and reduce_scatter; " +
          instead);
}

}  // namespace altorch
