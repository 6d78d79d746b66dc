// SPDX-License-Identifier: BSD-3-Clause
// altorch.TokenSwitch's steps on GPUs, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace altorch {

void bind_tokens(pybind11::module_& module);

}  // namespace altorch
