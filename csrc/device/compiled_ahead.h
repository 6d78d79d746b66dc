// SPDX-License-Identifier: BSD-3-Clause
// The kernels that the build's nvcc has compiled, for the GPUs that it knew: a fat binary inside
// this library.
#pragma once

#include <cstddef>
#include <span>

namespace altorch {

// Empty where the build had no nvcc. Thread rules: any thread.
std::span<const std::byte> kernels_compiled_ahead();

}  // namespace altorch
