// SPDX-License-Identifier: BSD-3-Clause
// all_reduce with the addition and the norm that follow it in a transformer.
#include "backend/c10d/issue.h"
#include "backend/cuda/normed_tensors.h"

namespace altorch::backend {

// On the CPU, and wherever a route does not do it in one kernel, torch does what comes behind the
// sum.
std::pair<at::Tensor, at::Tensor> AlBackend::all_reduce_rms_norm(const at::Tensor& part,
                                                                 const at::Tensor& residual,
                                                                 const std::optional<at::Tensor>& weight,
                                                                 double epsilon) {
  std::shared_ptr<NormedTensors> norm;
  issue(c10d::OpType::ALLREDUCE, OpKind::kAllReduce, cuda_device_of(part), c10d::kUnsetTimeout,
        /*async=*/false, [&](PreparedCall& call) {
          norm = std::make_shared<NormedTensors>(part, residual, weight, epsilon);
          set_reduction(call.operation, c10d::ReduceOp::SUM, norm->part());
          call.operation.count = norm->part().numel();
          call.keep = norm->all();
          call.outputs = {norm->normed(), norm->summed()};
          call.norm = norm;
          call.operation.input = norm->part().data_ptr();
          call.operation.output = norm->normed().data_ptr();
          if (!part.is_cuda()) norm->begin_apart(call.operation);
        });
  if (!part.is_cuda()) norm->end_apart();
  return {norm->normed(), norm->summed()};
}

}  // namespace altorch::backend
