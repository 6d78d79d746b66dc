// SPDX-License-Identifier: BSD-3-Clause
// Finds NCCL: the copy that torch has loaded, else the one that the system finds.
#pragma once

#include <string>

#include "gpu/nccl/api.h"

namespace altorch::nccl {

struct Library {
  Table table;
  int version = 0;  // 22809 is 2.28.9

  std::string version_text() const;
};

// Loads it once per process. Throws Error(kUnsupported) with the reason.
// Thread rules: any thread.
const Library& library();

// Asked by library() from now on in place of loading; null: it loads again. For tests, which have a
// fake. Called while nothing uses NCCL; what `find` gives must outlive whatever has seen it.
// Thread rules: one thread.
void replace_library(const Library& (*find)());

// Why NCCL cannot allocate memory, or nothing. Thread rules: any thread.
std::string allocator_unsupported_reason();

}  // namespace altorch::nccl
