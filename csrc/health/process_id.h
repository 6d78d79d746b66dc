// SPDX-License-Identifier: BSD-3-Clause
// Names a process of the job, for processes that watch it.
#pragma once

#include <string>

#include "base/fields.h"
#include "base/number.h"

namespace altorch {

struct ProcessId {
  std::string node;  // processes with equal values see each other's process ids
  long pid = 0;

  // Identifies one boot of one host.
  std::string boot() const { return node.substr(0, node.find('/')); }

  // Returns this process's.
  static ProcessId own();
  static constexpr std::size_t kFields = 2;
  Fields fields() const { return {node, std::to_string(pid)}; }
  static ProcessId from(const std::string& node, const std::string& pid) {
    return {node, number_from<long>(pid, "the id of its process")};
  }
};

}  // namespace altorch
