// SPDX-License-Identifier: BSD-3-Clause
// Compiles the GPU kernels when they are first needed, with the NVRTC that comes with torch or with
// CUDA.
#pragma once

#include <optional>
#include <string>

#include "device/kernels/names.h"

namespace altorch {

// Why nothing can be compiled, in a clause, or nothing. Thread rules: any thread.
std::optional<std::string> nvrtc_unsupported_reason();

// A cubin with the kernel in it; `architecture` is for instance 90 for sm_90. Needs no GPU. Throws
// Error(kUnsupported) where there is no NVRTC, or none that knows the architecture, with what it
// says. Thread rules: any thread.
std::string compile_kernel(const Kernel& kernel, int architecture);

}  // namespace altorch
