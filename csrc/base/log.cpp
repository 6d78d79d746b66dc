// SPDX-License-Identifier: BSD-3-Clause
#include "base/log.h"

#include <unistd.h>

#include "base/env.h"

namespace altorch {
namespace {

LogLevel threshold() {
  const std::string word = setting("ALTORCH_LOG_LEVEL");
  if (word == "error") return LogLevel::kError;
  if (word == "info") return LogLevel::kInfo;
  if (word == "debug") return LogLevel::kDebug;
  return LogLevel::kWarning;
}

}  // namespace

void log(LogLevel level, const std::string& message) {
  if (level > threshold()) return;
  constexpr const char* words[] = {"error", "warning", "info", "debug"};
  const std::string line = std::string("altorch ") + words[static_cast<int>(level)] + ": " + message + "\n";
  // One write, so that lines of several ranks do not mix.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace altorch
