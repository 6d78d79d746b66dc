// SPDX-License-Identifier: BSD-3-Clause
#include "backend/cuda/token_gather.h"

#include <ATen/ATen.h>

#include "backend/cuda/local_device.h"
#include "base/rounding.h"

namespace altorch::backend {
namespace {

// Up to so many bytes of a rank, parts are gathered as one. Each begins at a multiple of
// kPartAlignment bytes.
constexpr std::int64_t kPackedBytes = 1 << 20, kPartAlignment = 128;

std::int64_t width_of(const at::Tensor& rows) { return rows.size(1) * rows.element_size(); }

// With rows of adjacent elements, in a type that every backend moves: of float8 its bytes.
at::Tensor movable(const at::Tensor& tensor) {
  const at::Tensor rows = tensor.stride(1) == 1 || tensor.size(1) <= 1 ? tensor : tensor.contiguous();
  return rows.element_size() == 1 ? rows.view(at::kByte) : rows;
}

// Rows of `from`, a tensor of [..., rows, elements].
TokenRows rows_from(const at::Tensor& from) {
  const std::int64_t element = from.element_size(), last = from.dim() - 1;
  TokenRows rows;
  rows.from = from.data_ptr();
  rows.width = from.size(last) * element;
  rows.from_stride = from.stride(last - 1) * element;
  if (last == 2) rows.rank_stride = from.stride(0) * element;
  return rows;
}

// The names in torch 2.15, and those before.
template <class Group>
auto all_gather(Group& group, at::Tensor& all, at::Tensor& part, const c10d::AllgatherOptions& options) {
  if constexpr (requires { group.all_gather_single(all, part, options); }) {
    return group.all_gather_single(all, part, options);
  } else {
    return group._allgather_base(all, part, options);
  }
}
template <class Group>
auto reduce_scatter(Group& group, at::Tensor& sum, at::Tensor& parts,
                    const c10d::ReduceScatterOptions& options) {
  if constexpr (requires { group.reduce_scatter_single(sum, parts, options); }) {
    return group.reduce_scatter_single(sum, parts, options);
  } else {
    return group._reduce_scatter_base(sum, parts, options);
  }
}

at::Tensor gathered_of(const ProcessGroup& group, at::Tensor part, std::int64_t ranks) {
  at::Tensor all = at::empty({ranks * part.size(0), part.size(1)}, part.options());
  if (part.numel() != 0) {
    c10d::AllgatherOptions options;
    options.asyncOp = false;
    const auto work = all_gather(*group, all, part, options);
    if (work) work->wait();
  }
  return all.view({ranks, part.size(0), part.size(1)});
}

// [ranks, rows, elements] of a part that has at most so many rows.
TokenRows gather_alone(const ProcessGroup& group, const at::Tensor& part, std::int64_t rows,
                       std::int64_t ranks, at::Tensor& kept) {
  at::Tensor sent = part.contiguous();
  if (part.size(0) != rows) {
    sent = at::empty({rows, part.size(1)}, part.options());
    sent.narrow(0, 0, part.size(0)).copy_(part);
  }
  kept = gathered_of(group, sent, ranks);
  return rows_from(kept);
}

// The same of several parts, by one collective.
std::vector<TokenRows> gather_packed(const ProcessGroup& group, const std::vector<at::Tensor>& parts,
                                     std::int64_t rows, std::int64_t row_bytes, std::int64_t ranks,
                                     at::Tensor& kept) {
  const at::Tensor packed = at::empty({rows, row_bytes}, parts[0].options().dtype(at::kByte));
  RowPack job;
  job.count = static_cast<int>(parts[0].size(0));
  std::vector<std::int64_t> begins;
  std::int64_t end = 0;
  for (const at::Tensor& part : parts) {
    TokenRows& column = job.parts[job.number++] = rows_from(part);
    column.to = static_cast<std::byte*>(packed.data_ptr()) + end;
    column.to_stride = row_bytes;
    begins.push_back(end);
    end += rounded_up(column.width, kPartAlignment);
  }
  on_local_device(packed.device(), kTokenSwitch,
                  [&](Device& device, Stream stream) { device.pack_rows(job, stream); });
  kept = gathered_of(group, packed, ranks);
  std::vector<TokenRows> gathered;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TokenRows part = rows_from(kept);
    part.from = static_cast<const std::byte*>(part.from) + begins[i];
    part.width = width_of(parts[i]);
    gathered.push_back(part);
  }
  return gathered;
}

}  // namespace

GatheredRows gather_token_rows(const ProcessGroup& group, const std::vector<at::Tensor>& given,
                               std::int64_t rows, std::int64_t ranks) {
  std::vector<at::Tensor> parts;
  std::int64_t row_bytes = 0;
  for (const at::Tensor& part : given) {
    parts.push_back(movable(part));
    row_bytes += rounded_up(width_of(parts.back()), kPartAlignment);
  }
  GatheredRows gathered;
  gathered.kept.resize(parts.size());
  if (parts.size() > 1 && rows * row_bytes <= kPackedBytes) {
    gathered.parts = gather_packed(group, parts, rows, row_bytes, ranks, gathered.kept[0]);
    return gathered;
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    gathered.parts.push_back(gather_alone(group, parts[i], rows, ranks, gathered.kept[i]));
  return gathered;
}

void reduce_scatter_rows(const ProcessGroup& group, at::Tensor& sum, at::Tensor& parts) {
  c10d::ReduceScatterOptions options;
  options.asyncOp = false;
  const auto work = reduce_scatter(*group, sum, parts, options);
  if (work) work->wait();
}

}  // namespace altorch::backend
