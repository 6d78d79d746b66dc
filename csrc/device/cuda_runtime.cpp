// SPDX-License-Identifier: BSD-3-Clause
#include "device/cuda_runtime.h"

#include <dlfcn.h>

#include <initializer_list>

namespace altorch {
namespace {

template <typename Function>
void find(const char* symbol, Function& function) {
  for (const char* name : {"libcudart.so.13", "libcudart.so.12"}) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    dlclose(library);  // torch keeps it
    if (function) return;
  }
}

}  // namespace

CudaRuntime::CudaRuntime() {
  find("cudaStreamIsCapturing", stream_is_capturing_);
  find("cudaSetDevice", set_device_);
  find("cudaThreadExchangeStreamCaptureMode", exchange_capture_mode_);
}

const CudaRuntime& CudaRuntime::instance() {
  static const CudaRuntime runtime;
  return runtime;
}

bool CudaRuntime::is_capturing(void* stream) const {
  int status = 0;
  return stream_is_capturing_ && stream_is_capturing_(stream, &status) == 0 && status != 0;
}

CudaRuntime::RelaxedCapture::RelaxedCapture() {
  if (instance().exchange_capture_mode_) instance().exchange_capture_mode_(&mode_);
}

CudaRuntime::RelaxedCapture::~RelaxedCapture() {
  if (instance().exchange_capture_mode_) instance().exchange_capture_mode_(&mode_);
}

}  // namespace altorch
