// SPDX-License-Identifier: BSD-3-Clause
#include "backend/cuda/token_routing.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "backend/c10d/tensors.h"
#include "backend/cuda/local_device.h"
#include "backend/cuda/token_gather.h"
#include "gpu/gpu_source.h"

namespace altorch::backend {
namespace {

int* words_of(const at::Tensor& tensor) { return static_cast<int*>(tensor.data_ptr()); }

void check_result(const at::Tensor& result, at::IntArrayRef sizes, at::ScalarType type, at::Device device,
                  const char* what) {
  if (result.sizes() == sizes && result.scalar_type() == type && result.device() == device) return;
  refuse(std::string(kTokenSwitch) + ".dispatch: out has " + what + " of " +
         c10::toString(result.scalar_type()) + ", " + c10::str(result.sizes()) + " on " +
         result.device().str() + "; they must be " + c10::toString(type) + ", " + c10::str(sizes) + " on " +
         device.str());
}

// Dense results, which kernels write, for those of the caller.
class DenseResults {
 public:
  const at::Tensor& of(const at::Tensor& result) {
    if (result.is_contiguous()) return result;
    copies_.emplace_back(result, at::empty(result.sizes(), result.options()));
    return copies_.back().second;
  }
  void store() {
    for (const auto& [result, dense] : copies_) result.copy_(dense);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

}  // namespace

std::optional<std::string> token_kernels_unsupported_reason(int device) {
  const GpuSource gpus = cuda_gpus();
  const auto reason = gpus.unsupported_reason(device);
  return reason ? reason : gpus.kernel_unsupported_reason();
}

at::Tensor pack_indices(const at::Tensor& indices, const std::vector<std::int64_t>& header, std::int64_t sent,
                        std::int64_t size) {
  const at::Tensor given = indices.contiguous();
  const at::Tensor packed = at::empty({size}, indices.options().dtype(at::kInt));
  IndexPack job;
  job.indices = given.data_ptr();
  job.packed = words_of(packed);
  for (std::size_t i = 0; i < header.size() && i < TokenTable::kHeader; ++i)
    job.header[i] = static_cast<int>(header[i]);
  job.wide = given.scalar_type() == at::kLong;
  job.sent = sent;
  job.size = size;
  on_local_device(packed.device(), kTokenSwitch,
                  [&](Device& device, Stream stream) { device.pack_indices(job, stream); });
  return packed;
}

TokenRouting::TokenRouting(const at::Tensor& gathered, const TokenTable& table)
    : table_(table), gathered_(gathered) {
  const auto slots = std::int64_t{table.ranks} * table.max_tokens * table.rows_per_token;
  const auto words = TokenTable::kCounts + table.local + std::int64_t{table.ranks} * TokenTable::kHeader;
  const auto gathered_words =
      table.ranks * (TokenTable::kHeader + std::int64_t{table.max_tokens} * table.columns);
  if (!gathered.is_cuda() || !gathered.is_contiguous() || gathered.scalar_type() != at::kInt ||
      gathered.numel() != gathered_words)
    refuse(std::string(kTokenSwitch) + ": the gathered indices are of another shape or type");
  slots_ = at::empty({slots}, gathered.options());
  summary_ = at::empty({words}, gathered.options());
  table_.gathered = words_of(gathered_);
  table_.slots = words_of(slots_);
  table_.summary = words_of(summary_);
  on_local_device(gathered.device(), kTokenSwitch, [&](Device& device, Stream stream) {
    device.prepare_tokens();
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64})
      device.prepare(dtype, ReduceOp::kSum, Device::kRows);
    device.find_slots(table_, stream);
  });
}

void TokenRouting::dispatch(const ProcessGroup& group, std::int64_t rows, std::int64_t received,
                            const Tokens& mine, const Results& out) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts = {mine.tokens};
  if (mine.weights) parts.push_back(*mine.weights);
  if (mine.scales) parts.push_back(*mine.scales);
  auto [gathered, kept] = gather_token_rows(group, parts, rows, table_.ranks);
  std::optional<TokenRows> weights;
  if (mine.weights) {
    weights = gathered[1];
    gathered.erase(gathered.begin() + 1);
  }
  const std::int64_t room = out.tokens.dim() == 2 ? out.tokens.size(0) : 0;
  const at::Device device = gathered_.device();
  check_result(out.tokens, {room, mine.tokens.size(1)}, mine.tokens.scalar_type(), device, "tokens");
  if (out.scales && mine.scales)
    check_result(*out.scales, {room, mine.scales->size(1)}, mine.scales->scalar_type(), device, "scales");
  const std::vector<std::int64_t> sizes =
      table_.flat ? std::vector<std::int64_t>{room, table_.columns} : std::vector<std::int64_t>{room};
  if (out.weights) check_result(*out.weights, sizes, at::kFloat, device, "weights");
  if (out.indices) check_result(*out.indices, sizes, at::kLong, device, "indices");
  scatter(rows, received, gathered, weights, out);
}

void TokenRouting::scatter(std::int64_t rows, std::int64_t received, const std::vector<TokenRows>& parts,
                           const std::optional<TokenRows>& weights, const Results& out) const {
  DenseResults dense;
  RowScatter job;
  job.table = table_;
  job.count = static_cast<int>(rows);
  job.room = static_cast<int>(out.tokens.size(0));
  job.unused = received == job.room && table_.capacity == 0 ? 0 : job.room;
  const auto add = [&](const TokenRows& part, const at::Tensor& result) {
    TokenRows& added = job.parts[job.number++] = part;
    added.to = dense.of(result).data_ptr();
    added.to_stride = part.width;
  };
  add(parts[0], out.tokens);
  if (parts.size() > 1 && out.scales) add(parts[1], *out.scales);
  if (weights && out.weights) {
    job.weights = static_cast<const float*>(weights->from);
    job.weights_rank_stride = weights->rank_stride / std::int64_t{sizeof(float)};
    job.weights_row_stride = weights->from_stride / std::int64_t{sizeof(float)};
    job.out_weights = static_cast<float*>(dense.of(*out.weights).data_ptr());
    if (out.indices) job.out_indices = static_cast<std::int64_t*>(dense.of(*out.indices).data_ptr());
  }
  on_local_device(gathered_.device(), kTokenSwitch,
                  [&](Device& device, Stream stream) { device.scatter_rows(job, stream); });
  dense.store();
}

at::Tensor TokenRouting::combine(const ProcessGroup& group, std::int64_t rows, std::int64_t count,
                                 const at::Tensor& expert_tokens,
                                 const std::optional<at::Tensor>& out) const {
  const at::NoGradGuard no_grad;
  const std::int64_t width = expert_tokens.size(1);
  const at::Tensor given =
      expert_tokens.stride(1) == 1 || width <= 1 ? expert_tokens : expert_tokens.contiguous();
  at::Tensor parts = at::empty({table_.ranks * rows, width}, given.options());
  RowSum job;
  job.table = table_;
  job.rows = given.data_ptr();
  job.output = parts.data_ptr();
  job.stride = given.stride(0);
  job.width = width;
  job.count = static_cast<int>(rows);
  job.room = static_cast<int>(given.size(0));
  on_local_device(given.device(), kTokenSwitch,
                  [&](Device& device, Stream stream) { device.sum_rows(job, dtype_of(given), stream); });
  const bool fits = out && rows == count && out->is_contiguous();
  at::Tensor total = fits ? *out : at::empty({rows, width}, given.options());
  if (parts.numel() != 0) reduce_scatter_rows(group, total, parts);
  if (fits) return *out;
  // No view: autograd lets no caller change a view that a function returns in place.
  if (rows != count) total.resize_({count, width});
  return out ? out->copy_(total) : total;
}

}  // namespace altorch::backend
