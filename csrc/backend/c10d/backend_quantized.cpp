// SPDX-License-Identifier: BSD-3-Clause
// all_reduce of values that travel in 8 bits, where one kernel does it.
#include <ATen/ATen.h>

#include "backend/c10d/issue.h"
#include "backend/cuda/cuda_group.h"

namespace altorch::backend {

std::optional<at::Tensor> AlBackend::all_reduce_quantized(const at::Tensor& tensor, bool float8, bool mean) {
  if (!tensor.is_cuda() || estimate_.is_running()) return std::nullopt;
  Operation asked = about_gpu(tensor.device().index());
  asked.dtype = dtype_of(tensor);
  asked.op = quantized_sum(float8, mean);
  asked.count = tensor.numel();
  const bool in_one_kernel = guarded([&] {
    try {
      return cuda_group(asked)->can_carry(asked);
    } catch (const Error& error) {
      throw communicator_->explain(asked, error);
    }
  });
  if (!in_one_kernel) return std::nullopt;
  at::Tensor result;
  issue(c10d::OpType::ALLREDUCE, OpKind::kAllReduce, cuda_device_of(tensor), c10d::kUnsetTimeout,
        /*async=*/false, [&](PreparedCall& call) {
          const at::Tensor values = tensor.resolve_neg().contiguous();
          result = at::empty_like(values);
          call.operation.dtype = asked.dtype;
          call.operation.op = asked.op;
          call.operation.count = asked.count;
          call.operation.input = values.data_ptr();
          call.operation.output = result.data_ptr();
          call.keep = {values, result};
          call.outputs = {result};
        });
  return result;
}

}  // namespace altorch::backend
