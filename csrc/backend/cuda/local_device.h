// SPDX-License-Identifier: BSD-3-Clause
// Kernels of this rank alone, outside of any group: altorch.ops.exact_sum and the steps of
// altorch.ops.all_reduce_quantized.
#pragma once

#include <c10/core/Device.h>

#include <functional>

#include "device/device.h"

namespace altorch::backend {

// Calls act(device, the current stream of that GPU). The device stays open for the life of the
// process. Throws Error(kUnsupported), which names `what`, where no kernel can run. Any thread; one
// at a time acts.
void on_local_device(c10::Device place, const char* what,
                     const std::function<void(Device& device, Stream stream)>& act);

}  // namespace altorch::backend
