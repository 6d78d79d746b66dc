// SPDX-License-Identifier: BSD-3-Clause
#include "platform/host_namespace.h"

#include <unistd.h>

#include <fstream>

#include "base/env.h"
#include "base/random_name.h"

namespace altorch {

std::string host_namespace(const std::string& kind) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  // Where that is hidden no two processes are taken for neighbours.
  static const std::string drawn = random_name(16);
  if (boot.empty()) boot = drawn;
  char target[128];
  const ssize_t length = readlink(("/proc/self/ns/" + kind).c_str(), target, sizeof target);
  const std::string space(target, length < 0 ? 0 : static_cast<std::size_t>(length));
  return boot + "/" + space + "/" + setting("ALTORCH_NODE");
}

}  // namespace altorch
