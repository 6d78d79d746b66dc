// SPDX-License-Identifier: BSD-3-Clause
// altorch.TokenSwitch for CUDA tensors (docs/token-switch.md): its local steps are kernels of the
// engine, and a dispatch or a combine is one call, so that little of it is spent on the host. All
// kernels run in the order of the current stream; no call waits for the GPU. Thread rules: any
// thread. Callers have checked tokens, weights and scales; results of the caller are checked here.
// Throw Error(kInvalidArgument), Error(kUnsupported) where no kernel can run, and what the group
// throws.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/token_gather.h"

namespace altorch::backend {

// Why the kernels cannot run on a GPU, in a clause, or nothing.
std::optional<std::string> token_kernels_unsupported_reason(int device);

// The header, the first `sent` of the indices (int32 or int64), and -1: `size` words of int32.
at::Tensor pack_indices(const at::Tensor& indices, const std::vector<std::int64_t>& header, std::int64_t sent,
                        std::int64_t size);

// Where the tokens of all ranks go on this rank.
class TokenRouting {
 public:
  // `table`: sizes, without pointers. `gathered`: what pack_indices() has made, of all ranks. Loads
  // all kernels that later calls need, so that these can be captured.
  TokenRouting(const at::Tensor& gathered, const TokenTable& table);

  // Words of TokenTable::summary.
  const at::Tensor& summary() const { return summary_; }

  // Gathers the tokens of all ranks, each of which contributes `rows` rows, and writes them to
  // their slots in `out`, zeros to its other rows. `received`: rows that come, -1 where the host
  // does not know it. `scales` go with their tokens.
  struct Tokens {
    at::Tensor tokens;
    std::optional<at::Tensor> weights, scales;
  };
  struct Results {
    at::Tensor tokens;
    std::optional<at::Tensor> weights, indices, scales;
  };
  void dispatch(const ProcessGroup& group, std::int64_t rows, std::int64_t received, const Tokens& mine,
                const Results& out) const;

  // The sum of the rows of each of this rank's `count` tokens, over all ranks; in `out`, if there
  // is one.
  at::Tensor combine(const ProcessGroup& group, std::int64_t rows, std::int64_t count,
                     const at::Tensor& expert_tokens, const std::optional<at::Tensor>& out) const;

 private:
  void scatter(std::int64_t rows, std::int64_t received, const std::vector<TokenRows>& parts,
               const std::optional<TokenRows>& weights, const Results& out) const;

  TokenTable table_;
  at::Tensor gathered_, slots_, summary_;
};

}  // namespace altorch::backend
