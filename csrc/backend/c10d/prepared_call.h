// SPDX-License-Identifier: BSD-3-Clause
// An operation with what must live as long as it.
#pragma once

#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "backend/c10d/tensors.h"
#include "backend/cuda/normed_tensors.h"
#include "base/operation.h"

namespace altorch::backend {

struct PreparedCall {
  Operation operation;
  std::vector<std::int64_t> input_counts, output_counts;
  std::vector<Block> loads;              // staged inputs: filled before the start
  std::vector<Block> stores;             // staged outputs: emptied after the end
  c10::SmallVector<at::Tensor, 4> keep;  // what the operation touches
  std::vector<at::Tensor> outputs;       // of the Work
  std::shared_ptr<NormedTensors> norm;   // of an all_reduce with one behind it
  std::optional<c10::Stream> called_on;  // where a window keeps it: the stream that was current at the call
  std::uint64_t kept_key =
      0;  // of the KeptWork that was given for it (backend/hooks/completion_hooks.h); 0: none

  // Adds tensors that the operation touches. All are on its device.
  template <typename... Tensors>
  void touch(const Tensors&... tensors) {
    (keep_one(tensors), ...);
  }

  // Lets the operation's spans point to this call's counts: after the last move.
  void bind() {
    operation.input_counts = input_counts;
    operation.output_counts = output_counts;
    if (!norm) return;
    operation.norm = &norm->norm();
    operation.norm_row = norm->row();
  }

 private:
  // A block that is not staged is the tensor itself.
  void keep_one(const at::Tensor& tensor) {
    if (keep.empty() || !keep.back().is_same(tensor)) keep.push_back(tensor);
  }
};

// Throws Error(kInvalidArgument) if the call's tensors are not all on its device.
void check_device(const PreparedCall& call);

}  // namespace altorch::backend
