// A report as a person reads it, a line for each group: what SIGUSR1 puts on standard error.
#pragma once

#include <string>

#include "observe/trace/report.h"

namespace altorch {

std::string as_text(const ProcessReport& report);

}  // namespace altorch
