// SPDX-License-Identifier: BSD-3-Clause
// Measured durations of collectives, for time estimates that run no call. default_costs.inc has the
// defaults, of the result files that it names; `altorch tune` measures this machine.
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

// Estimated seconds of a collective among `ranks` ranks of one node; on kGpu of the device alone. 0
// for one rank, and for operations that were not measured (messages, one-sided). reduce and scans
// take the times of all_reduce, gather and scatter those of all_gather. Between sizes and between
// numbers of ranks: log-log interpolation. Below the smallest of them: as that. Above the largest
// size: in proportion to the bytes; above the most ranks: to log2(ranks). Tuned rows of other
// numbers of ranks scale the default by their ratio to it. Any thread.
double measured_seconds(On on, const Operation& operation, int ranks);

// Replaces the tuned rows, which come before the defaults; empty: defaults only. Throws
// ErrorKind::kInvalidArgument, and changes nothing, if a row has fewer than 2 ranks or no time, if
// sizes do not rise from 0, or if a time does not lie between 0 and 1e12 us. Any thread.
void set_tuned_costs(std::vector<CostRow> rows);

}  // namespace altorch
