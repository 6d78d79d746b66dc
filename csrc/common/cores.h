// How many cores this process may use.
#pragma once

#include <sched.h>

#include <optional>

namespace altorch {

// Nothing where there are more than the system's mask has places for (1,024).
inline std::optional<int> usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return std::nullopt;
  return CPU_COUNT(&cores);
}

}  // namespace altorch
