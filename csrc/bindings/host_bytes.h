// SPDX-License-Identifier: BSD-3-Clause
// Memory of the host between Python's buffers and tensors, for altorch.objects.
#pragma once

#include <torch/extension.h>

namespace altorch {

// A tensor of bytes over the memory of a contiguous Python buffer, which it keeps. Call it with
// Python's lock. Throws py::value_error.
at::Tensor tensor_over(const pybind11::buffer& buffer);
void bind_host_bytes(pybind11::module_& module);

}  // namespace altorch
