// SPDX-License-Identifier: BSD-3-Clause
// `altorch simulate`'s view of csrc/simulate.
#pragma once

#include <pybind11/pybind11.h>

namespace altorch {

void bind_simulation(pybind11::module_& module);

}  // namespace altorch
