// SPDX-License-Identifier: BSD-3-Clause
// The collectives of altorch.TokenSwitch on GPUs, in the order of the current stream. Ranks that
// have no kernels send the same bytes: python/altorch/token_switch/_rows.py. Thread rules: any
// thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "device/kernels/jobs.cuh"

namespace altorch::backend {

using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;
constexpr const char* kTokenSwitch = "altorch.TokenSwitch";  // as errors name it

// `parts`: where each lies in the memory of `kept`, by rank and row.
struct GatheredRows {
  std::vector<TokenRows> parts;
  std::vector<at::Tensor> kept;
};
// An all_gather of the rows of several tensors, each of which has at most `rows` rows; those behind
// are undefined. Small ones go side by side, by one collective.
GatheredRows gather_token_rows(const ProcessGroup& group, const std::vector<at::Tensor>& given,
                               std::int64_t rows, std::int64_t ranks);

// sum = this rank's block of the sum of `parts` over all ranks.
void reduce_scatter_rows(const ProcessGroup& group, at::Tensor& sum, at::Tensor& parts);

}  // namespace altorch::backend
