// SPDX-License-Identifier: BSD-3-Clause
// The kernels for x86 CPUs with AVX-512.
#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "reduction/inexact_flag.h"
#include "reduction/kernel_table.h"

#define ALTORCH_REDUCTION_LEVEL avx512
#define ALTORCH_REDUCTION_NAME "AVX-512"
#define ALTORCH_REDUCTION_F16C 1
#define ALTORCH_REDUCTION_LANES 16

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC optimize("O3", "fp-contract=off", "no-trapping-math")
#pragma GCC target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#endif
#include "reduction/kernels.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
