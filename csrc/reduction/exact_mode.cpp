// SPDX-License-Identifier: BSD-3-Clause
#include "reduction/exact_mode.h"

#include "base/env.h"

namespace altorch {
namespace {

const std::string kNamesOfMode = "(ALTORCH_DETERMINISTIC=exact, or deterministic='exact' of altorch.Options)";

bool is_served(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
}

std::string remedy_for(OpKind kind, ReduceOp op, DType dtype) {
  if (is_served(kind) && is_complex(dtype)) return "pass torch.view_as_real(tensor)";
  if (is_served(kind) && op == ReduceOp::kPremulSum) return "multiply the tensor before, and take SUM";
  return "use a group without that mode";
}

}  // namespace

bool exact_setting() { return setting("ALTORCH_DETERMINISTIC") == kExactMode; }

void check_deterministic_option(const std::string& value) {
  if (value == kExactMode) return;
  throw Error(
      ErrorKind::kInvalidArgument,
      "deterministic is '" + value +
          "', and may be 'exact' or None; for the order of the ranks, which holds for all groups, set "
          "ALTORCH_DETERMINISTIC=1");
}

std::optional<Error> exact_unsupported_reason(int ranks) {
  if (ranks <= kMostExactRanks) return std::nullopt;
  return Error(ErrorKind::kInvalidArgument, "exact sums " + kNamesOfMode + " are for groups of up to " +
                                                std::to_string(kMostExactRanks) +
                                                " ranks, and this one has " + std::to_string(ranks));
}

ReduceOp exact_op_for(OpKind kind, ReduceOp op, DType dtype) {
  const bool rounds = is_floating(dtype) || is_complex(dtype);
  const BinaryOp binary = kReduceOps[op].of_numbers;
  if (!rounds || binary == BinaryOp::kMin || binary == BinaryOp::kMax || is_exact(op)) return op;
  if (is_served(kind) && is_floating(dtype)) {
    if (op == ReduceOp::kSum) return ReduceOp::kExactSum;
    if (op == ReduceOp::kAvg) return ReduceOp::kExactAvg;
  }
  throw order_dependent_error(std::string(name_of(op)) + " of " + name_of(dtype) + " by " + name_of(kind),
                              remedy_for(kind, op, dtype));
}

ReduceOp op_for_call(OpKind kind, ReduceOp op, DType dtype, bool has_exact_sums) {
  const ReduceOp once = rounded_once(op, dtype);
  if (once != op && !is_served(kind)) {
    throw Error(ErrorKind::kInvalidArgument,
                std::string(name_of(op)) + " of " + name_of(dtype) + " by " + name_of(kind) +
                    " would be rounded at each step; convert the tensor to float32");
  }
  return has_exact_sums ? exact_op_for(kind, once, dtype) : once;
}

Error order_dependent_error(const std::string& what, const std::string& remedy) {
  return {ErrorKind::kUnsupported,
          what + " would depend on the order of the ranks. The sums of this group are exact " + kNamesOfMode +
              ", which serves SUM and AVG of real types by all_reduce, reduce and reduce_scatter; " + remedy};
}

}  // namespace altorch
