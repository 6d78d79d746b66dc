// SPDX-License-Identifier: BSD-3-Clause
// The GPU kernels by name, and what defines them: a kernel is a function run_...() of the .cuh
// files, for a type and an operator where it reduces.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace altorch {

struct Kernel {
  std::string symbol;      // of C
  std::string definition;  // after kernel_source()
};

// Throw Error(kInternal) for a type that cannot be reduced.
Kernel reduction_kernel(DType dtype, ReduceOp op);
Kernel ll_reduction_kernel(DType dtype, ReduceOp op);
Kernel two_shot_kernel(DType dtype, ReduceOp op);
Kernel one_shot_kernel(DType dtype, ReduceOp op);
Kernel window_update_kernel(DType dtype, ReduceOp op);
Kernel ll128_reduce_kernel(DType dtype, ReduceOp op);
Kernel window_move_kernel();
Kernel window_wait_kernel();
Kernel window_number_kernel();
Kernel ll_norm_kernel(DType dtype);
// Of float16, bfloat16 and float32.
Kernel quantized_chunks_kernel(DType dtype, bool float8);
Kernel row_sum_kernel(DType dtype);
Kernel index_pack_kernel();
Kernel find_slots_kernel();
Kernel row_pack_kernel();
Kernel row_scatter_kernel();
Kernel ll_move_kernel();
Kernel pair_exchange_kernel();
Kernel exchange_kernel();
Kernel ll128_exchange_kernel();
Kernel block_copies_kernel();
Kernel poison_kernel();

// Everything that they are made of.
std::string kernel_source();
// Those that a build with nvcc compiles ahead (cmake/Kernels.cmake): of the usual types and
// operators.
std::vector<Kernel> kernels_ahead();

}  // namespace altorch
