// SPDX-License-Identifier: BSD-3-Clause
// Kernels that a rank runs without its peers, outside of any group: altorch.ops.exact_sum, and the
// local steps of altorch.ops.all_reduce_quantized and altorch.TokenSwitch.
#pragma once

#include <c10/core/Device.h>

#include <functional>

#include "device/device.h"

namespace altorch::backend {

// Calls act(device, the current stream of that GPU) under a lock of the process. The device stays
// open until the process ends. Throws Error(kUnsupported), with `what` as the name of the caller,
// if no kernel can run. Any thread.
void on_local_device(c10::Device place, const char* what,
                     const std::function<void(Device& device, Stream stream)>& act);

}  // namespace altorch::backend
