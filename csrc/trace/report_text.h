// SPDX-License-Identifier: BSD-3-Clause
// A report as a person reads it, a line for each group: what SIGUSR1 puts on standard error.
#pragma once

#include <string>

#include "trace/report.h"

namespace altorch {

std::string as_text(const ProcessReport& report);
// Of one group: "in all_reduce #7 (float32, 1 MiB) for 2.0 s, ...; last was barrier #6, done 2.1 s
// ago".
std::string state_of(const GroupReport& group, std::int64_t now_ns);

}  // namespace altorch
