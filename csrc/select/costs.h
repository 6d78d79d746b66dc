// SPDX-License-Identifier: BSD-3-Clause
// What calls take, by measurement: for time estimates that run no call. The rows of
// benchmarks/results/ that default_costs.inc names are for one machine; `altorch tune` measures
// this one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "select/row.h"

namespace altorch {

struct CostPoint {
  std::int64_t bytes;  // payload_bytes()
  double us;
};

struct CostRow {
  On on;  // kHost, through memory that ranks share; kGpu, as the score table chooses
  std::string operation;
  int ranks;
  std::vector<CostPoint> points;  // ascending
};

// Seconds that a collective takes among ranks of one node: on host memory of a call, on CUDA
// tensors of the device alone. Between sizes and between numbers of ranks: log-log
// interpolation; beyond the largest size the time grows with the bytes, beyond the most ranks
// with the logarithm of their number. What was tuned for other numbers of ranks scales the default.
// Of one rank: 0. Any thread.
double measured_seconds(On on, const Operation& operation, int ranks);

// Rows that `altorch tune` measured, which come first from now on; empty: none. Throws
// ErrorKind::kInvalidArgument, and changes nothing then. Any thread.
void set_tuned_costs(std::vector<CostRow> rows);

}  // namespace altorch
