// SPDX-License-Identifier: BSD-3-Clause
#include "backend/cuda/normed_tensors.h"

#include <ATen/ATen.h>

#include "backend/c10d/tensors.h"

namespace altorch::backend {
namespace {

// That all are on one device, every call is asked (set_device).
void check_like(const at::Tensor& tensor, const at::Tensor& part, const char* what) {
  check_tensor(tensor, what);
  check_same_dtype(tensor, part, what);
}

}  // namespace

NormedTensors::NormedTensors(const at::Tensor& part, const at::Tensor& residual,
                             const std::optional<at::Tensor>& weight, double epsilon) {
  check_tensor(part, "all_reduce_rms_norm's tensor");
  if (at::GradMode::is_enabled() &&
      (part.requires_grad() || residual.requires_grad() || (weight && weight->requires_grad())))
    throw Error(
        ErrorKind::kUnsupported,
        "all_reduce_rms_norm has no gradient, and a tensor requires one; call it under torch.no_grad(), or "
        "all_reduce and torch.nn.functional.rms_norm where you train");
  check_like(residual, part, "all_reduce_rms_norm's residual");
  if (!is_floating(dtype_of(part)))
    refuse(std::string("all_reduce_rms_norm takes floating-point tensors, and not ") +
           name_of(dtype_of(part)) + "; convert it");
  if (part.dim() == 0) refuse("all_reduce_rms_norm's tensor has no dimension, and so no rows");
  if (residual.sizes() != part.sizes())
    refuse("all_reduce_rms_norm's residual is of shape " + c10::str(residual.sizes()) +
           ", and the tensor of " + c10::str(part.sizes()) + "; they must have the same");
  if (weight) {
    check_like(*weight, part, "all_reduce_rms_norm's weight");
    if (weight->dim() != 1 || weight->size(0) != part.size(-1))
      refuse("all_reduce_rms_norm's weight is of shape " + c10::str(weight->sizes()) +
             ", and must have one number for each column of a tensor of shape " + c10::str(part.sizes()));
  }
  part_ = part.contiguous();
  residual_ = residual.contiguous();
  if (weight) weight_ = weight->contiguous();
  normed_ = at::empty_like(part_);
  summed_ = at::empty_like(part_);
  norm_ = {.residual = residual_.data_ptr(),
           .weight = weight_.defined() ? weight_.data_ptr() : nullptr,
           .summed = summed_.data_ptr(),
           .epsilon = epsilon};
}

c10::SmallVector<at::Tensor, 4> NormedTensors::all() const {
  c10::SmallVector<at::Tensor, 4> tensors{part_, residual_, normed_, summed_};
  if (weight_.defined()) tensors.push_back(weight_);
  return tensors;
}

void NormedTensors::begin_apart(Operation& operation) {
  apart_ = true;
  summed_.copy_(part_);
  operation.input = operation.output = summed_.data_ptr();
}

void NormedTensors::end_apart() {
  summed_.add_(residual_);
  normed_.copy_(at::rms_norm(summed_, {summed_.size(-1)},
                             weight_.defined() ? std::optional<at::Tensor>(weight_) : std::nullopt,
                             norm_.epsilon));
}

}  // namespace altorch::backend
