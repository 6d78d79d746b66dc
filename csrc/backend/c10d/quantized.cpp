// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/quantized.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/c10d/tensors.h"
#include "backend/cuda/local_device.h"
#include "base/error.h"
#include "base/rounding.h"
#include "reduction/kernel_table.h"
#include "reduction/quantized.h"

namespace altorch::backend {
namespace {

using reduction::kQuantizedBlock;
static_assert(kQuantizedBlock == QuantizedChunks::kBlock);

constexpr const char* kName = "all_reduce_quantized";
// A chunk's elements are a multiple, so that every chunk begins at a multiple of 16 bytes.
constexpr std::int64_t kAlignedSize = 4 * static_cast<std::int64_t>(kQuantizedBlock);

// Elements of a chunk.
std::int64_t chunk_size(const at::Tensor& values, std::int64_t number) {
  return rounded_up(divided_up(values.numel(), number), kAlignedSize);
}
// More than the chunk takes where the last elements do not fill it, so that ranks whose single
// chunks have other numbers of elements have rows of another length, and are told so.
std::int64_t row_bytes(const at::Tensor& values, std::int64_t size) {
  return size * 33 / 32 + values.numel() % kAlignedSize * 16;
}

// `values`: the tensor that is quantized, or the result.
void check_values(const at::Tensor& values) {
  const DType dtype = dtype_of(values);
  if (!is_half(dtype) && dtype != DType::kFloat32)
    throw Error(ErrorKind::kInvalidArgument, std::string(kName) +
                                                 ": it is for float16, bfloat16 and float32, not " +
                                                 name_of(dtype) + "; convert the tensor");
  if (!values.is_cpu() && !values.is_cuda())
    throw Error(ErrorKind::kUnsupported,
                std::string(kName) + ": it is for CPU and CUDA tensors, not " + values.device().str());
}

void change_on_gpu(QuantizedChunks::Step step, const at::Tensor& chunks, std::int64_t size,
                   const at::Tensor& values, double factor, bool float8) {
  QuantizedChunks job;
  job.input = job.output = values.data_ptr();
  job.chunks = chunks.data_ptr();
  job.count = values.numel();
  job.size = size;
  job.stride = chunks.size(1);
  job.number = static_cast<int>(chunks.size(0));
  job.step = step;
  job.factor = static_cast<float>(factor);
  job.float8 = float8 ? 1 : 0;
  on_local_device(values.device(), kName, [&](Device& device, Stream stream) {
    device.change_chunks(job, dtype_of(values), stream);
  });
}

// Calls act(a chunk's memory, where its values begin in `values`, how many) for each chunk.
template <class Act>
void for_each_chunk(const at::Tensor& chunks, std::int64_t size, const at::Tensor& values, const Act& act) {
  const std::int64_t element = values.element_size();
  for (std::int64_t i = 0; i < chunks.size(0); ++i) {
    const std::int64_t begin = std::min(i * size, values.numel());
    act(static_cast<std::byte*>(chunks.data_ptr()) + i * chunks.size(1),
        static_cast<std::byte*>(values.data_ptr()) + begin * element,
        static_cast<std::size_t>(std::min(size, values.numel() - begin)));
  }
}

}  // namespace

at::Tensor quantize(const at::Tensor& tensor, std::int64_t number, bool float8) {
  check_values(tensor);
  const std::int64_t size = chunk_size(tensor, number);
  at::Tensor chunks = at::empty({number, row_bytes(tensor, size)}, tensor.options().dtype(at::kByte));
  if (tensor.is_cuda()) {
    change_on_gpu(QuantizedChunks::kQuantize, chunks, size, tensor, 1, float8);
    return chunks;
  }
  for_each_chunk(chunks, size, tensor, [&](void* chunk, const void* values, std::size_t count) {
    altorch::quantize(dtype_of(tensor), float8, values, count, chunk, static_cast<std::size_t>(size));
  });
  return chunks;
}

void sum_quantized(const at::Tensor& chunks, const at::Tensor& result, double factor, bool float8) {
  check_values(result);
  const std::int64_t size = chunk_size(result, 1);
  if (result.is_cuda()) return change_on_gpu(QuantizedChunks::kSum, chunks, size, result, factor, float8);
  std::vector<const void*> rows;
  for (std::int64_t i = 0; i < chunks.size(0); ++i)
    rows.push_back(static_cast<const std::byte*>(chunks.const_data_ptr()) + i * chunks.size(1));
  altorch::sum_quantized(dtype_of(result), float8, rows, static_cast<std::size_t>(size),
                         static_cast<float>(factor), result.data_ptr(),
                         static_cast<std::size_t>(result.numel()));
}

void dequantize(const at::Tensor& chunks, const at::Tensor& result, bool float8) {
  check_values(result);
  const std::int64_t size = chunk_size(result, chunks.size(0));
  if (result.is_cuda()) return change_on_gpu(QuantizedChunks::kDequantize, chunks, size, result, 1, float8);
  for_each_chunk(chunks, size, result, [&](const void* chunk, void* values, std::size_t count) {
    altorch::sum_quantized(dtype_of(result), float8, {&chunk, 1}, static_cast<std::size_t>(size), 1.0f,
                           values, count);
  });
}

}  // namespace altorch::backend
