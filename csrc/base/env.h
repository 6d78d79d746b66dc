// SPDX-License-Identifier: BSD-3-Clause
// Every setting that altorch reads from the environment, in one table. The docs and `altorch info`
// print it.
//
// Values are read when they are asked for, so that a test or a launcher may still set them after
// import.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace altorch {

struct Setting {
  const char* name;
  const char* type;  // "seconds", "bytes", the words it may be ("error|warning"), or what it is otherwise
  const char* default_value;
  const char* meaning;
  bool must_agree = false;  // the ranks of a group are compared when it is made (rendezvous/agreement.h)
};

std::span<const Setting> settings();

// The value, or the table's default. The name must be in the table (ErrorKind::kInternal
// otherwise).
std::string setting(const char* name);
// The same as a number; a value that is none throws ErrorKind::kInvalidArgument with the setting's
// name.
double numeric_setting(const char* name);
// The same of a setting in seconds.
std::chrono::milliseconds seconds_setting(const char* name);

// The first whose value is not of its type.
std::optional<Error> wrong_setting();

// ALTORCH_* variables that are set and that no row names: most likely spelling mistakes.
std::vector<std::string> unknown_settings();

}  // namespace altorch
