// SPDX-License-Identifier: BSD-3-Clause
#include "device/cuda_driver.h"

#include <dlfcn.h>

#include <atomic>

#include "base/error.h"

namespace altorch::cuda {
namespace {

Driver load() {
  Driver driver;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    driver.missing = std::string("the CUDA driver cannot be loaded (") + (reason ? reason : "?") + ")";
    return driver;
  }
  const auto find = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (!function && !driver.missing)
      driver.missing = std::string("the CUDA driver has no ") + symbol + ": it is older than CUDA 12";
  };
#define ALTORCH_CUDA_FIND(name, symbol, arguments) find(symbol, driver.name);
  ALTORCH_CUDA_FUNCTIONS(ALTORCH_CUDA_FIND)
#undef ALTORCH_CUDA_FIND
  return driver;
}

std::atomic<const Driver*> replacement{nullptr};

}  // namespace

void Driver::check(const char* what, Result result) const {
  if (result == kSuccess) return;
  const char* text = nullptr;
  error_string(result, &text);
  throw Error(ErrorKind::kTransport, std::string(what) + " failed: " + (text ? text : "unknown error") +
                                         " (CUDA error " + std::to_string(result) + ")");
}

void replace_driver(const Driver* fake) { replacement.store(fake); }

const Driver& driver() {
  if (const Driver* fake = replacement.load(std::memory_order_acquire)) return *fake;
  static const Driver instance = load();
  return instance;
}

int capability_of(int device) {
  int major = 0, minor = 0;
  if (driver().device_attribute(&major, kComputeCapabilityMajor, device) != kSuccess ||
      driver().device_attribute(&minor, kComputeCapabilityMinor, device) != kSuccess)
    return 0;
  return 10 * major + minor;
}

}  // namespace altorch::cuda
