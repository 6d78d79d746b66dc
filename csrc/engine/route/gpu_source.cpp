#include "engine/route/gpu_source.h"

#include "device/cuda_device.h"
#include "device/nvrtc.h"
#include "transports/shm/shared_memory.h"

namespace altorch {

GpuSource cuda_gpus() {
  return {
      .open = [](int index, bool shared) { return std::make_unique<CudaDevice>(index, shared); },
      .open_beside = [](int index) { return std::make_unique<CudaDevice>(index, false, /*beside=*/true); },
      .obstacle = CudaDevice::obstacle,
      .kernel_obstacle = nvrtc_obstacle,
      .export_obstacle = CudaDevice::export_obstacle,
      .identity = CudaDevice::identity,
      .together = CudaDevice::serves_several,
      .multiprocessors = CudaDevice::multiprocessors,
      .links = CudaDevice::links,
      .atomics_obstacle = CudaDevice::atomics_obstacle,
      .node = shared_memory_node,
  };
}

}  // namespace altorch
