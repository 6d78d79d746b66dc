// SPDX-License-Identifier: BSD-3-Clause
// What carries one call: on device memory a row of table.h; on host memory an algorithm over the
// group's messages, or the transport's own collective.
#pragma once

#include <string_view>

#include "collectives/algorithm.h"

namespace altorch {

struct GpuRouteRow;
inline constexpr int kNoNative = -1;

struct Route {
  std::string_view name = {};            // as in ALTORCH_ROUTE and in statistics
  const char* reason = "";               // why it is taken, one clause
  const Algorithm* algorithm = nullptr;  // on host memory, over messages
  int native = kNoNative;                // on host memory: which of World::native carries it
  std::string_view protocol = {};        // the one that ALTORCH_ROUTE names, on host memory
  const GpuRouteRow* row = nullptr;      // on device memory
  bool in_pairs = false;                 // all_to_all: it carries the small blocks, NCCL the others
  bool early = false;                    // tried before its turn; errors do not mention it
};

}  // namespace altorch
