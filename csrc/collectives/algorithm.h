// SPDX-License-Identifier: BSD-3-Clause
// The table of algorithms. A new one is a file that ends with its row, and its name in
// algorithm.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/op_kind.h"
#include "collectives/schedule.h"

namespace altorch {

// The alpha-beta-gamma model: one message costs alpha, one byte on the wire beta, one byte reduced
// gamma [s].
struct CostModel {
  double alpha = 1e-6;
  double beta = 1e-10;
  double gamma = 5e-11;
};

struct Algorithm {
  OpKind kind;
  std::string_view name;          // as in ALTORCH_ROUTE: "recursive_doubling"
  std::string_view summary;       // one line for `altorch algorithms`
  std::string_view cost_formula;  // in p, n (bytes of the vector, or of one block), a, b, g
  bool even_only = false;         // cannot take per-rank counts
  bool pipelined = false;         // uses Problem::segment_count
  bool combines = false;  // makes results by StepKind::kCombine alone: half types need no wide messages
  // Seconds for p ranks and n bytes: of the whole vector (all_reduce, reduce, broadcast) or of one
  // block.
  double (*cost)(int p, double n, const CostModel& model);
  Schedule (*build)(const Problem& problem);
};

// All rows, grouped by operation, the default for large sizes last.
std::span<const Algorithm* const> algorithms();
// The row, or nullptr.
const Algorithm* find_algorithm(OpKind kind, std::string_view name);

}  // namespace altorch
