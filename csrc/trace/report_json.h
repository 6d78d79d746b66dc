// SPDX-License-Identifier: BSD-3-Clause
// A report as JSON, for `altorch trace`. Its keys are an interface: python/altorch/cli/trace.py and
// _waits.py read them.
#pragma once

#include <string>
#include <string_view>

#include "trace/report.h"

namespace altorch {

std::string as_json(const ProcessReport& report);
// With its quotation marks.
std::string quoted_json(std::string_view text);

}  // namespace altorch
