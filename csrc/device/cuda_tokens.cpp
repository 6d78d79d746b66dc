// SPDX-License-Identifier: BSD-3-Clause
// CudaDevice's part for altorch.TokenSwitch.
#include <algorithm>

#include "base/rounding.h"
#include "device/cuda_device.h"

namespace altorch {
namespace {

constexpr std::int64_t kLump = 16;                // bytes that a thread moves at once
constexpr std::int64_t kLumpsOfThread = 4;        // in a block with enough to do
constexpr std::int64_t kFewestThreads = 128;      // of a block, if the row has work for them
constexpr std::int64_t kBlocksOfSmall = 4 * 132;  // keep the multiprocessors of an H100 or H200 busy

}  // namespace

// A row of a small call is cut into pieces, so that few rows are moved by all multiprocessors.
void CudaDevice::launch_rows(void* kernel, std::int64_t rows, std::int64_t bytes, const void* argument,
                             Stream stream) {
  const std::int64_t lumps = std::max<std::int64_t>(divided_up(bytes, kLump), 1);
  const std::int64_t pieces =
      std::clamp<std::int64_t>(divided_up(kBlocksOfSmall, rows), 1, divided_up(lumps, kFewestThreads));
  const std::int64_t of_piece = divided_up(lumps, pieces);
  const std::int64_t threads =
      std::max(divided_up(of_piece, kLumpsOfThread), std::min(of_piece, kFewestThreads));
  launch(kernel, static_cast<unsigned>(rows), static_cast<unsigned>(pieces), threads, argument, stream);
}

void CudaDevice::prepare_tokens() {
  if (row_scatter_) return;
  const auto entered = context_->enter();
  index_pack_ = context_->kernel(index_pack_kernel());
  find_slots_ = context_->kernel(find_slots_kernel());
  row_pack_ = context_->kernel(row_pack_kernel());
  row_scatter_ = context_->kernel(row_scatter_kernel());
}

void CudaDevice::pack_indices(const IndexPack& job, Stream stream) {
  prepare_tokens();
  const auto entered = context_->enter();
  launch(index_pack_, job.size, /*most_blocks=*/256, &job, stream);
}

// Blocks of all 16 warps: each warp reads a stretch of the entries.
void CudaDevice::find_slots(const TokenTable& table, Stream stream) {
  prepare_tokens();
  const auto entered = context_->enter();
  launch(find_slots_, static_cast<unsigned>(table.local + table.flat), 1, /*threads=*/512, &table, stream);
}

void CudaDevice::pack_rows(const RowPack& job, Stream stream) {
  if (job.count == 0) return;
  prepare_tokens();
  const auto entered = context_->enter();
  launch_rows(row_pack_, job.count, job.parts[0].width, &job, stream);
}

void CudaDevice::scatter_rows(const RowScatter& job, Stream stream) {
  const std::int64_t rows = std::int64_t{job.table.ranks} * job.count + job.unused;
  if (rows == 0) return;
  prepare_tokens();
  const auto entered = context_->enter();
  launch_rows(row_scatter_, rows, job.parts[0].width, &job, stream);
}

void CudaDevice::sum_rows(const RowSum& job, DType dtype, Stream stream) {
  const std::int64_t rows = std::int64_t{job.table.ranks} * job.count;
  if (rows == 0 || job.width == 0) return;
  prepare(dtype, ReduceOp::kSum, kRows);
  const auto entered = context_->enter();
  launch_rows(reduction(dtype, ReduceOp::kSum, kRows), rows,
              job.width * static_cast<std::int64_t>(size_of(dtype)), &job, stream);
}

}  // namespace altorch
