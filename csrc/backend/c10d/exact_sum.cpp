// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/exact_sum.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "backend/c10d/tensors.h"
#include "backend/cuda/local_device.h"
#include "base/error.h"
#include "reduction/reduce.h"

namespace altorch::backend {
namespace {

// Of a tensor that can be summed.
DType checked_dtype(const at::Tensor& stacked) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorKind::kInvalidArgument, "exact_sum: " + what);
  };
  if (stacked.layout() != c10::kStrided) refuse("it is for dense tensors; call to_dense()");
  const DType dtype = dtype_of(stacked);
  if (!can_reduce(dtype, ReduceOp::kExactSum))
    refuse(std::string("it is for float64, float32, bfloat16, float16, float8_e4m3fn and float8_e5m2, not ") +
           name_of(dtype));
  if (stacked.dim() == 0 || stacked.size(0) == 0)
    refuse("the tensor has no first dimension to sum over, or nothing in it; stack what is to be summed");
  if (stacked.size(0) > kMostExactRanks)
    refuse("up to " + std::to_string(kMostExactRanks) + " can be summed, not " +
           std::to_string(stacked.size(0)));
  if (at::GradMode::is_enabled() && stacked.requires_grad())
    throw Error(ErrorKind::kUnsupported,
                "exact_sum has no gradient, and its tensor requires one; call it under torch.no_grad()");
  return dtype;
}

using Rows = std::vector<const void*>;

void sum_on_cpu(const Rows& rows, DType dtype, ReduceOp op, const at::Tensor& result) {
  combine(dtype, op, rows, result.data_ptr(), static_cast<std::size_t>(result.numel()));
}

void sum_on_gpu(const Rows& rows, DType dtype, ReduceOp op, const at::Tensor& result) {
  if (rows.size() > DeviceReduction::kMaxParts)
    throw Error(ErrorKind::kUnsupported, "exact_sum: on a GPU it takes up to " +
                                             std::to_string(DeviceReduction::kMaxParts) +
                                             " summands; copy the tensor to the CPU");
  DeviceReduction job;
  for (const void* row : rows) job.parts[job.number++] = row;
  job.output = result.data_ptr();
  job.count = result.numel();
  on_local_device(result.device(), "exact_sum", [&](Device& device, Stream stream) {
    device.prepare(dtype, op, Device::kParts);
    device.reduce(job, dtype, op, stream);
  });
}

}  // namespace

at::Tensor exact_sum(const at::Tensor& stacked, bool mean) {
  const DType dtype = checked_dtype(stacked);
  const at::Tensor contiguous = stacked.resolve_neg().contiguous();
  at::Tensor result = at::empty(contiguous.sizes().slice(1), contiguous.options());
  if (contiguous.size(0) == 1) return result.copy_(contiguous[0]);
  if (result.numel() == 0) return result;
  Rows rows;
  const auto* const first = static_cast<const std::byte*>(contiguous.const_data_ptr());
  for (std::int64_t i = 0; i < contiguous.size(0); ++i)
    rows.push_back(first + static_cast<std::size_t>(i * result.numel()) * size_of(dtype));
  const ReduceOp op = mean ? ReduceOp::kExactAvg : ReduceOp::kExactSum;
  if (contiguous.is_cpu()) {
    sum_on_cpu(rows, dtype, op, result);
  } else if (contiguous.is_cuda()) {
    sum_on_gpu(rows, dtype, op, result);
  } else {
    throw Error(ErrorKind::kUnsupported,
                "exact_sum: it is for CPU and CUDA tensors, not " + contiguous.device().str());
  }
  return result;
}

}  // namespace altorch::backend
