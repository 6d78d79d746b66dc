// Which kernel reduces which type by which operator.
#pragma once

#include <string>

#include "common/dtype.h"
#include "common/reduce_op.h"

namespace altorch {

// The name of an instance of kernels::reduce, as NVRTC takes it.
std::string reduction_kernel(DType dtype, ReduceOp op);
// Everything that defines it.
std::string kernel_source();

}  // namespace altorch
