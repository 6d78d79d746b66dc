// SPDX-License-Identifier: BSD-3-Clause
// What the groups of a process have done, as Prometheus reads it from a file (ALTORCH_METRICS).
#pragma once

#include <string>

#include "observe/trace/report.h"

namespace altorch {

// In the text format that node_exporter's textfile collector takes.
std::string as_metrics(const ProcessReport& report);
// `file` with the rank before its extension: "al.prom" becomes "al.3.prom".
std::string metrics_file(const std::string& file, int rank);
// Written beside it and then renamed, so that nobody reads half of it. False where that cannot be done.
bool write_metrics(const std::string& file, const ProcessReport& report);

}  // namespace altorch
