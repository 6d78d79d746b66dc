// SPDX-License-Identifier: BSD-3-Clause
#include "trace/call_text.h"

#include <algorithm>

#include "base/size_text.h"

namespace altorch {

std::optional<std::int64_t> bytes_of(const FlightEntry& entry) {
  if (!entry.input && !entry.output) return std::nullopt;
  return std::max(entry.input.value_or(0), entry.output.value_or(0)) *
         static_cast<std::int64_t>(size_of(entry.dtype));
}

std::string text_of(const FlightEntry& entry) {
  std::string text = name_of(entry.kind);
  if (is_message(entry.kind)) {
    text += entry.kind == OpKind::kSend ? " to " : " from ";
    text += entry.root < 0 ? "any rank" : "rank " + std::to_string(entry.root);
    text += ", tag " + std::to_string(entry.tag);
  } else if (entry.access) {
    text += " " + std::to_string(entry.tag) + ": " + entry.access;
    if (entry.root >= 0) text += " rank " + std::to_string(entry.root);
  } else {
    text += " #" + std::to_string(entry.sequence);
  }
  const char* const gpu = entry.on_gpu ? "CUDA, " : "";
  if (const auto bytes = bytes_of(entry))
    text += std::string(" (") + gpu + name_of(entry.dtype) + ", " + size_text(*bytes) + ")";
  return text;
}

}  // namespace altorch
