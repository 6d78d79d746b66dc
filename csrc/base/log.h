// SPDX-License-Identifier: BSD-3-Clause
// Lines on standard error, filtered by ALTORCH_LOG_LEVEL. Rare by design: never on the path of an
// operation.
#pragma once

#include <string>

namespace altorch {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

void log(LogLevel level, const std::string& message);

}  // namespace altorch
