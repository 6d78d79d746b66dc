// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/quantized.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
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

static_assert(kQuantizedUnit == QuantizedChunks::kUnit);

constexpr const char* kName = "all_reduce_quantized";
constexpr std::int64_t kUnit = kQuantizedUnit, kUnitBytes = kQuantizedUnitBytes,
                       kHeaderBytes = sizeof(QuantizedHeader);

// Elements of a chunk.
std::int64_t chunk_size(const at::Tensor& values, std::int64_t number) {
  return rounded_up(divided_up(values.numel(), number), kUnit);
}
std::int64_t row_bytes(std::int64_t size) { return kHeaderBytes + size / kUnit * kUnitBytes; }

constexpr unsigned kFloat8Bit = 1u << 8, kMeanBit = 1u << 9;
QuantizedHeader header_of(const at::Tensor& values, bool float8, bool mean) {
  QuantizedHeader header;
  header.count = values.numel();
  header.kind = static_cast<unsigned>(dtype_of(values)) | (float8 ? kFloat8Bit : 0) | (mean ? kMeanBit : 0);
  return header;
}
std::string described(const QuantizedHeader& header) {
  return std::string(header.kind & kMeanBit ? "the mean of " : "the sum of ") + std::to_string(header.count) +
         " " + name_of(static_cast<DType>(header.kind & 0xFFu)) +
         (header.kind & kFloat8Bit ? " in float8" : " in int8");
}
// A chunk: its header, then its packs.
std::byte* row_of(const at::Tensor& chunks, std::int64_t chunk) {
  return static_cast<std::byte*>(chunks.data_ptr()) + chunk * chunks.size(1);
}
// Every rank sees the headers of all ranks, so that all throw, or none.
void check_headers(const at::Tensor& chunks) {
  const auto* const first = reinterpret_cast<const QuantizedHeader*>(row_of(chunks, 0));
  for (std::int64_t rank = 1; rank < chunks.size(0); ++rank) {
    const auto* const other = reinterpret_cast<const QuantizedHeader*>(row_of(chunks, rank));
    if (other->count == first->count && other->kind == first->kind) continue;
    throw Error(ErrorKind::kMismatch, std::string(kName) + ": rank 0 asks for " + described(*first) +
                                          ", and rank " + std::to_string(rank) + " for " + described(*other) +
                                          "; all ranks must pass the same");
  }
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

void change_on_gpu(QuantizedChunks job, const at::Tensor& chunks, std::int64_t size, const at::Tensor& values,
                   bool float8) {
  job.input = job.output = values.data_ptr();
  job.chunks = chunks.data_ptr();
  job.count = values.numel();
  job.size = size;
  job.stride = chunks.size(1);
  job.number = static_cast<int>(chunks.size(0));
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
    act(row_of(chunks, i) + kHeaderBytes, static_cast<std::byte*>(values.data_ptr()) + begin * element,
        static_cast<std::size_t>(std::min(size, values.numel() - begin)));
  }
}

}  // namespace

at::Tensor quantize(const at::Tensor& tensor, std::int64_t number, bool float8, bool mean) {
  check_values(tensor);
  const std::int64_t size = chunk_size(tensor, number);
  at::Tensor chunks = at::empty({number, row_bytes(size)}, tensor.options().dtype(at::kByte));
  const QuantizedHeader header = header_of(tensor, float8, mean);
  if (tensor.is_cuda()) {
    QuantizedChunks job;
    job.step = QuantizedChunks::kQuantize;
    job.header = header;
    change_on_gpu(job, chunks, size, tensor, float8);
    return chunks;
  }
  for_each_chunk(chunks, size, tensor, [&](void* chunk, const void* values, std::size_t count) {
    std::memcpy(static_cast<std::byte*>(chunk) - kHeaderBytes, &header, sizeof header);
    altorch::quantize(dtype_of(tensor), float8, values, count, chunk, static_cast<std::size_t>(size / kUnit));
  });
  return chunks;
}

void sum_quantized(const at::Tensor& chunks, const at::Tensor& result, double factor, bool float8) {
  check_values(result);
  const std::int64_t size = chunk_size(result, 1);
  if (result.is_cuda()) {
    QuantizedChunks job;
    job.step = QuantizedChunks::kSum;
    job.factor = static_cast<float>(factor);
    return change_on_gpu(job, chunks, size, result, float8);
  }
  check_headers(chunks);
  std::vector<const void*> rows;
  for (std::int64_t i = 0; i < chunks.size(0); ++i) rows.push_back(row_of(chunks, i) + kHeaderBytes);
  altorch::sum_quantized(dtype_of(result), float8, rows, static_cast<float>(factor), result.data_ptr(),
                         static_cast<std::size_t>(result.numel()));
}

void dequantize(const at::Tensor& chunks, const at::Tensor& result, bool float8) {
  check_values(result);
  const std::int64_t size = chunk_size(result, chunks.size(0));
  if (result.is_cuda()) {
    QuantizedChunks job;
    job.step = QuantizedChunks::kDequantize;
    return change_on_gpu(job, chunks, size, result, float8);
  }
  for_each_chunk(chunks, size, result, [&](const void* chunk, void* values, std::size_t count) {
    altorch::sum_quantized(dtype_of(result), float8, {&chunk, 1}, 1.0f, values, count);
  });
}

}  // namespace altorch::backend
