// SPDX-License-Identifier: BSD-3-Clause
// What the groups of a process have done, as a file for Prometheus (ALTORCH_METRICS).
#pragma once

#include <string>

#include "trace/report.h"

namespace altorch {

// In the text format that node_exporter's textfile collector takes.
std::string as_metrics(const ProcessReport& report);
// `file` with the rank before its extension: "al.prom" becomes "al.3.prom".
std::string metrics_file(const std::string& file, int rank);
// Writes a temporary file next to it and renames that, so that no reader sees half of it. False if
// that fails.
bool write_metrics(const std::string& file, const ProcessReport& report);

}  // namespace altorch
