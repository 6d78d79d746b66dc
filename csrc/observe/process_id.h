// How a process of the job may be watched by others.
#pragma once

#include <string>

#include "common/fields.h"
#include "common/number.h"

namespace altorch {

struct ProcessId {
  std::string home;  // processes with the same home see each other's process ids
  long pid = 0;

  // The same for two processes: on one host, since it was started.
  std::string boot() const { return home.substr(0, home.find('/')); }

  // Of this process.
  static ProcessId own();
  static constexpr std::size_t kFields = 2;
  Fields fields() const { return {home, std::to_string(pid)}; }
  static ProcessId from(const std::string& home, const std::string& pid) {
    return {home, number_from<long>(pid, "the id of its process")};
  }
};

}  // namespace altorch
