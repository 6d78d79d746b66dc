// SPDX-License-Identifier: BSD-3-Clause
// Memory of another process of this node, as Python's transport copies it: altorch._C.Process.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace altorch {

void add_process_memory(pybind11::module_& module);

}  // namespace altorch
