// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/exact_sum.h"

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/c10d/tensors.h"
#include "backend/cuda/cuda_guard.h"
#include "base/error.h"
#include "gpu/gpu_source.h"
#include "reduction/reduce.h"

namespace altorch::backend {
namespace {

void check(const at::Tensor& stacked, DType dtype) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorKind::kInvalidArgument, "exact_sum: " + what);
  };
  if (!can_reduce(dtype, ReduceOp::kExactSum))
    refuse(std::string("it is for float16, bfloat16, float32 and float64, not ") + name_of(dtype));
  if (stacked.dim() == 0 || stacked.size(0) == 0)
    refuse("the tensor has no first dimension to sum over, or nothing in it; stack what is to be summed");
  if (stacked.size(0) > kMostExactRanks)
    refuse("up to " + std::to_string(kMostExactRanks) + " can be summed, not " +
           std::to_string(stacked.size(0)));
}

// The devices that have been asked for, for the life of the process.
void sum_on_gpu(const DeviceReduction& job, DType dtype, ReduceOp op, c10::Device place) {
  static auto* const mutex = new std::mutex();
  static auto* const devices = new std::map<int, std::unique_ptr<Device>>();
  const std::lock_guard lock(*mutex);
  auto& device = (*devices)[place.index()];
  if (!device) {
    const GpuSource gpus = cuda_gpus();
    if (const auto why = gpus.kernel_unsupported_reason())
      throw Error(ErrorKind::kUnsupported, "exact_sum: " + *why);
    device = gpus.open(place.index(), /*shared=*/true);
  }
  device->prepare(dtype, op, Device::kParts);
  device->reduce(job, dtype, op, cuda_guard().getStream(place).native_handle());
}

}  // namespace

at::Tensor exact_sum(const at::Tensor& stacked, bool mean) {
  const DType dtype = dtype_of(stacked);
  check(stacked, dtype);
  const at::Tensor rows = stacked.detach().contiguous();
  const std::int64_t number = rows.size(0);
  at::Tensor result = at::empty(rows.sizes().slice(1), rows.options());
  if (number == 1 || result.numel() == 0) return number == 1 ? result.copy_(rows[0]) : result;
  const ReduceOp op = mean ? ReduceOp::kExactAvg : ReduceOp::kExactSum;
  const auto* const first = static_cast<const std::byte*>(rows.const_data_ptr());
  const auto bytes = static_cast<std::size_t>(result.numel()) * size_of(dtype);
  const auto row = [&](std::int64_t i) { return first + static_cast<std::size_t>(i) * bytes; };
  if (rows.is_cpu()) {
    std::vector<const void*> parts;
    for (std::int64_t i = 0; i < number; ++i) parts.push_back(row(i));
    combine(dtype, op, parts, result.data_ptr(), static_cast<std::size_t>(result.numel()));
    return result;
  }
  if (!rows.is_cuda() || number > DeviceReduction::kMaxParts)
    throw Error(ErrorKind::kUnsupported, "exact_sum: on " + rows.device().str() + " it takes up to " +
                                             std::to_string(rows.is_cuda() ? DeviceReduction::kMaxParts : 0) +
                                             " summands; copy the tensor to the CPU");
  DeviceReduction job;
  for (std::int64_t i = 0; i < number; ++i) job.parts[job.number++] = row(i);
  job.output = result.data_ptr();
  job.count = result.numel();
  sum_on_gpu(job, dtype, op, rows.device());
  return result;
}

}  // namespace altorch::backend
