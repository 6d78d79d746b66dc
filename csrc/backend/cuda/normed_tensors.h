// SPDX-License-Identifier: BSD-3-Clause
// The tensors of an all_reduce with a norm behind it (base/rms_norm.h), and what torch makes of
// them where no route does it in the same kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>

#include "base/operation.h"

namespace altorch::backend {

class NormedTensors {
 public:
  // What this rank has for the sum, rows of one size, and the residual of the same shape; a weight
  // for each column. Throws Error(kInvalidArgument), and Error(kUnsupported) where a gradient is
  // required.
  NormedTensors(const at::Tensor& part, const at::Tensor& residual, const std::optional<at::Tensor>& weight,
                double epsilon);

  const at::Tensor& part() const { return part_; }
  const at::Tensor& normed() const { return normed_; }
  const at::Tensor& summed() const { return summed_; }
  // All that the call touches.
  c10::SmallVector<at::Tensor, 4> all() const;

  // For a route that does all of it. Valid for as long as this.
  const RmsNorm& norm() const { return norm_; }
  std::int64_t row() const { return std::max<std::int64_t>(1, part_.size(-1)); }
  // For others: what they reduce is the sum alone. Both on the current stream, before that and
  // after it.
  void begin_apart(Operation& operation);
  void end_apart();
  bool is_apart() const { return apart_; }

 private:
  at::Tensor part_, residual_, weight_, normed_, summed_;
  RmsNorm norm_;
  bool apart_ = false;
};

}  // namespace altorch::backend
