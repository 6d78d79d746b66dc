// SPDX-License-Identifier: BSD-3-Clause
#include "device/cuda_context.h"

#include "base/error.h"
#include "device/compiled_ahead.h"
#include "device/cuda_driver.h"
#include "device/cuda_runtime.h"
#include "device/nvrtc.h"

namespace altorch {
namespace {

using cuda::driver;

std::mutex& all_contexts() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

}  // namespace

CudaContext::Current::Current(void* context, bool stays) {
  const cuda::Driver& cuda = driver();
  if (cuda.get_context(&before_) != cuda::kSuccess) before_ = nullptr;
  if (before_ == context) return;
  const auto result = cuda.set_context(context);
  if (stays) cuda.check("cuCtxSetCurrent", result);
  goes_back_ = !stays;
}

// To none, too: a context that is no more must not stay a thread's, and the next one may have its
// address.
CudaContext::Current::~Current() {
  if (goes_back_) driver().set_context(before_);
}

// It stays retained: it lives as long as the process.
std::shared_ptr<CudaContext> CudaContext::primary(int device) {
  static auto* const all = new std::map<int, std::shared_ptr<CudaContext>>;
  const std::lock_guard lock(all_contexts());
  auto& found = (*all)[device];
  if (!found) {
    void* handle = nullptr;
    driver().check("cuDevicePrimaryCtxRetain", driver().retain_context(&handle, device));
    found.reset(new CudaContext(device, handle, /*is_primary=*/true));
  }
  return found;
}

std::shared_ptr<CudaContext> CudaContext::beside(int device) {
  static auto* const all = new std::map<int, std::weak_ptr<CudaContext>>;
  const std::lock_guard lock(all_contexts());
  auto found = (*all)[device].lock();
  if (!found) {
    const cuda::Driver& cuda = driver();
    void *handle = nullptr, *pushed = nullptr;
    const auto result = cuda.create_context(&handle, 0, device);
    if (result != cuda::kSuccess) {
      throw Error(ErrorKind::kUnsupported, "GPU " + std::to_string(device) +
                                               " gives no second context (cuCtxCreate: CUDA error " +
                                               std::to_string(result) + ")");
    }
    cuda.pop_context(&pushed);
    found.reset(new CudaContext(device, handle, /*is_primary=*/false));
    (*all)[device] = found;
  }
  return found;
}

CudaContext::~CudaContext() {
  if (!is_primary_) driver().destroy_context(handle_);
}

void* CudaContext::kernel(const Kernel& kernel) {
  const std::lock_guard lock(loading_);
  void*& function = loaded_[kernel.symbol];
  if (!function) {
    // A graph may be captured meanwhile, into which this does not go.
    const CudaRuntime::RelaxedCapture relaxed;
    function = compiled_ahead(kernel);
    if (!function) function = compiled_now(kernel);
  }
  return function;
}

// Null where the build had no nvcc, or none that knew this GPU, or it is none of the usual.
void* CudaContext::compiled_ahead(const Kernel& kernel) {
  const cuda::Driver& cuda = driver();
  if (!tried_) {
    tried_ = true;
    const auto image = kernels_compiled_ahead();
    if (!image.empty() && cuda.load_module(&ahead_, image.data()) != cuda::kSuccess) ahead_ = nullptr;
  }
  void* function = nullptr;
  const bool found = ahead_ && cuda.get_function(&function, ahead_, kernel.symbol.c_str()) == cuda::kSuccess;
  return found ? function : nullptr;
}

void* CudaContext::compiled_now(const Kernel& kernel) const {
  const cuda::Driver& cuda = driver();
  const std::string cubin = compile_kernel(kernel, cuda::capability_of(device_));
  void *module = nullptr, *function = nullptr;
  cuda.check("cuModuleLoadData", cuda.load_module(&module, cubin.data()));
  cuda.check("cuModuleGetFunction", cuda.get_function(&function, module, kernel.symbol.c_str()));
  return function;
}

}  // namespace altorch
