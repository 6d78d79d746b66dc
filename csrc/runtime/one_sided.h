// SPDX-License-Identifier: BSD-3-Clause
// One-sided access, as the group that it belongs to sees it. windows/windows.h implements it.
#pragma once

#include <chrono>

#include "base/adaptive_wait.h"

namespace altorch {

class OneSided {
 public:
  virtual ~OneSided() = default;
  // Advances what is in flight. True while something is left, or while peers may ask something of
  // this rank. Called by one thread at a time.
  virtual bool drive(std::chrono::steady_clock::time_point now, Driven& found) = 0;
};

}  // namespace altorch
