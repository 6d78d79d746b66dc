#include "common/host_namespace.h"

#include <unistd.h>

#include <fstream>

#include "common/env.h"

namespace altorch {

std::string host_namespace(const std::string& kind) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  char target[128];
  const ssize_t length = readlink(("/proc/self/ns/" + kind).c_str(), target, sizeof target);
  const std::string space(target, length < 0 ? 0 : static_cast<std::size_t>(length));
  return boot + "/" + space + "/" + setting("ALTORCH_NODE");
}

}  // namespace altorch
