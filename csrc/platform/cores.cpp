// SPDX-License-Identifier: BSD-3-Clause
#include "platform/cores.h"

#include <sched.h>

#include <bitset>
#include <sstream>

namespace altorch {

std::string usable_cores() {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return "";
  std::string list;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable)) continue;
    const int first = core;
    while (core + 1 < CPU_SETSIZE && CPU_ISSET(core + 1, &usable)) ++core;
    if (!list.empty()) list += ',';
    list += std::to_string(first);
    if (core > first) list += '-' + std::to_string(core);
  }
  return list;
}

std::optional<int> count_cores(std::span<const std::string> lists) {
  std::bitset<CPU_SETSIZE> all;
  for (const std::string& list : lists) {
    if (list.empty()) return std::nullopt;
    std::istringstream ranges(list);
    for (std::string range; std::getline(ranges, range, ',');) {
      std::istringstream words(range);
      std::size_t first = 0, last = 0;
      char dash = 0;
      if (!(words >> first)) return std::nullopt;
      if (!(words >> dash >> last)) last = first;
      if (first > last || last >= all.size()) return std::nullopt;
      for (; first <= last; ++first) all.set(first);
    }
  }
  return static_cast<int>(all.count());
}

}  // namespace altorch
