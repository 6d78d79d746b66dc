// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/prepared_call.h"

namespace altorch::backend {

void check_device(const PreparedCall& call) {
  if (call.keep.empty()) return;
  const c10::Device device = call.keep.front().device();
  for (const at::Tensor& tensor : call.keep) {
    if (!tensor.defined() || tensor.device() == device) continue;
    throw Error(ErrorKind::kInvalidArgument, "its tensors are on different devices, " + device.str() +
                                                 " and " + tensor.device().str() + "; move them to one");
  }
  if (cuda_device_of(call.keep.front()) != call.operation.device)
    throw Error(ErrorKind::kInternal, "its tensors are on " + device.str() +
                                          ", but it was numbered as a call on another kind of device");
}

}  // namespace altorch::backend
