// SPDX-License-Identifier: BSD-3-Clause
// The kernels for any CPU that the build targets.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "reduction/inexact_flag.h"
#include "reduction/kernel_table.h"

#define ALTORCH_REDUCTION_LEVEL baseline
#define ALTORCH_REDUCTION_NAME "baseline"
#define ALTORCH_REDUCTION_F16C 0

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math")
#endif
#include "reduction/kernels.inc"
