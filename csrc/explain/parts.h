// SPDX-License-Identifier: BSD-3-Clause
// The parts of explain(): one for each kind of memory. Thread rules: any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/operation.h"
#include "base/protocol.h"
#include "explain/explain.h"
#include "select/route.h"

namespace altorch {

// Throws Error(kInvalidArgument).
[[noreturn]] void refuse(const std::string& why);

// Each throws what explain() throws.
Explanation explain_on_host(const Question& question, const Operation& asked);
Explanation explain_on_gpus(const Question& question, const Operation& asked);
Explanation explain_window(const Question& question, const Operation& asked);
// A message between host memories.
Explanation explain_message(const Question& question);

// `asked`: the protocol that a rule names, or empty.
void add_protocol(Explanation& said, const Route& taken, const ExplainedProtocol& found,
                  std::string_view asked);

}  // namespace altorch
