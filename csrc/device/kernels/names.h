// Which kernel reduces which type by which operator.
#pragma once

#include <string>

#include "common/dtype.h"
#include "common/reduce_op.h"

namespace altorch {

// Names of instances of kernels, as NVRTC takes them. Throw Error(kInternal) for a type that cannot be reduced.
std::string reduction_kernel(DType dtype, ReduceOp op);
std::string small_reduction_kernel(DType dtype, ReduceOp op);
std::string bulk_reduction_kernel(DType dtype, ReduceOp op);
std::string small_move_kernel();
std::string pair_exchange_kernel();
std::string bulk_move_kernel();
std::string poison_kernel();
// Everything that defines them.
std::string kernel_source();

}  // namespace altorch
