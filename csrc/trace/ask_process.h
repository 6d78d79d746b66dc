// SPDX-License-Identifier: BSD-3-Clause
// What another process of this node is at, asked at its trace socket by one that misses it in a
// call.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace altorch {

// The answer of a process of this node. Nothing where it has no trace socket or does not answer in
// time.
std::optional<std::string> ask_process(long pid, std::string_view question,
                                       std::chrono::milliseconds timeout);

inline constexpr std::string_view kLateIn = "late in ";  // a question: the key of a group behind it

// The answer to that question, of which the process has its flight record written too; or that it
// is stopped.
std::optional<std::string> late_text_of_process(long pid, std::string_view key,
                                                std::chrono::milliseconds timeout);

}  // namespace altorch
