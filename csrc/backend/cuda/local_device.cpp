// SPDX-License-Identifier: BSD-3-Clause
#include "backend/cuda/local_device.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backend/cuda/cuda_guard.h"
#include "base/error.h"
#include "gpu/gpu_source.h"

namespace altorch::backend {

void on_local_device(c10::Device place, const char* what,
                     const std::function<void(Device& device, Stream stream)>& act) {
  // `mutex` also serialises compilation.
  static auto* const mutex = new std::mutex();
  static auto* const devices = new std::map<int, std::unique_ptr<Device>>();
  const std::lock_guard lock(*mutex);
  auto& device = (*devices)[place.index()];
  if (!device) {
    const GpuSource gpus = cuda_gpus();
    if (const auto why = gpus.kernel_unsupported_reason())
      throw Error(ErrorKind::kUnsupported, std::string(what) + ": " + *why);
    device = gpus.open(place.index(), /*shared=*/true);
  }
  act(*device, cuda_guard().getStream(place).native_handle());
}

}  // namespace altorch::backend
