// The algorithms of calls on host memory that no rule chooses.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/algorithm.h"
#include "engine/operation.h"

namespace altorch {

struct Route {
  const Algorithm* algorithm = nullptr;  // nullptr: the library's own collective, called "native"
  const char* reason = "";               // one clause, for `altorch explain`

  std::string_view name() const { return algorithm ? algorithm->name : std::string_view("native"); }
};

// A function of what all ranks know alike. `bytes`: payload_bytes().
Route default_route(const Operation& operation, int size, std::int64_t bytes);

}  // namespace altorch
