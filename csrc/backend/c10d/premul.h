// SPDX-License-Identifier: BSD-3-Clause
// torch's name for the factor of PREMUL_SUM, which changed in 2.12.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace altorch::backend {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
using PremulSupplement = c10d::NCCLPreMulSumSupplement;  // newer torch keeps the name as an alias
#else
using PremulSupplement = c10d::PreMulSumSupplement;
#endif

}  // namespace altorch::backend
