// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/gpu_source.h"

#include "device/cuda_device.h"
#include "device/nvrtc.h"
#include "rendezvous/shared_memory.h"

namespace altorch {

GpuSource cuda_gpus() {
  return {
      .open = [](int index, bool shared) { return std::make_unique<CudaDevice>(index, shared); },
      .open_beside = [](int index) { return std::make_unique<CudaDevice>(index, false, /*beside=*/true); },
      .unsupported_reason = CudaDevice::unsupported_reason,
      .kernel_unsupported_reason = nvrtc_unsupported_reason,
      .export_unsupported_reason = CudaDevice::export_unsupported_reason,
      .identity = CudaDevice::identity,
      .mps = CudaDevice::serves_several,
      .multiprocessors = CudaDevice::multiprocessors,
      .links = CudaDevice::links,
      .atomics_unsupported_reason = CudaDevice::atomics_unsupported_reason,
      .allocation = CudaDevice::allocation,
      .node = shared_memory_node,
  };
}

}  // namespace altorch
