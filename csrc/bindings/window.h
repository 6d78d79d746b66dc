// SPDX-License-Identifier: BSD-3-Clause
// altorch.Window for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace altorch {

void bind_window(pybind11::module_& module);

}  // namespace altorch
