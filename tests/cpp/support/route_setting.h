// SPDX-License-Identifier: BSD-3-Clause
// ALTORCH_ROUTE for as long as it lives.
#pragma once

#include <cstdlib>
#include <string>

namespace altorch {

struct RouteSetting {
  explicit RouteSetting(const std::string& text) { setenv("ALTORCH_ROUTE", text.c_str(), 1); }
  ~RouteSetting() { unsetenv("ALTORCH_ROUTE"); }
  RouteSetting(const RouteSetting&) = delete;
};

}  // namespace altorch
