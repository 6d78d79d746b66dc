// SPDX-License-Identifier: BSD-3-Clause
// ALTORCH_DETERMINISTIC=exact, and `deterministic` of altorch.Options: SUM and AVG of a group are
// exact, and rounded once (docs/exact.md). All ranks of a group agree on the mode. Thread rules:
// pure functions, any thread.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "base/op_kind.h"
#include "base/reduce_op.h"

namespace altorch {

inline constexpr const char* kExactMode = "exact";

// Whether ALTORCH_DETERMINISTIC says so.
bool exact_setting();

// Checks Options.deterministic. Throws Error(kInvalidArgument) for another value.
void check_deterministic_option(const std::string& value);

// Why a group of so many ranks has no exact sums, or nothing.
std::optional<Error> exact_unsupported_reason(int ranks);

// What a reduction becomes in a group whose sums are exact. Throws order_dependent_error() where it
// is none of those that the mode serves.
ReduceOp exact_op_for(OpKind kind, ReduceOp op, DType dtype);

// What a reduction that a caller asks for becomes: exact_op_for() if the sums of the group are
// exact, rounded_once() for float8, otherwise `op`. Throws Error(kInvalidArgument) where the call
// would round a float8 at each step, and what exact_op_for() throws. Other combinations that no
// kernel has are returned as they are: can_reduce() is false.
ReduceOp op_for_call(OpKind kind, ReduceOp op, DType dtype, bool has_exact_sums);

// Error(kUnsupported): "<what> would depend on the order of the ranks ...; <remedy>".
Error order_dependent_error(const std::string& what, const std::string& remedy);

}  // namespace altorch
