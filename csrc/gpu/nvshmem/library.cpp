// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/nvshmem/library.h"

#include <dlfcn.h>

#include <string>

#include "base/error.h"
#include "device/cuda_runtime.h"

namespace altorch::nvshmem {
namespace {

constexpr const char* kName = "libnvshmem_host.so.3";

// torch's wheels have each library of NVIDIA's in a folder of its own.
std::string beside_cuda_runtime() {
  Dl_info where{};
  const auto function = CudaRuntime::instance().set_device();
  if (!function || !dladdr(reinterpret_cast<void*>(function), &where) || !where.dli_fname) return kName;
  const std::string path = where.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + "../../nvshmem/lib/" + kName;
}

void* open() {
  if (void* loaded = dlopen(kName, RTLD_LAZY | RTLD_NOLOAD)) return loaded;
  for (const std::string& path : {beside_cuda_runtime(), std::string(kName)}) {
    if (void* found = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) return found;
  }
  const char* reason = dlerror();
  throw Error(ErrorKind::kUnsupported, std::string("NVSHMEM cannot be loaded: ") + (reason ? reason : kName));
}

template <class Result, class... Arguments>
void resolve(void* library, const char* symbol, std::function<Result(Arguments...)>& function) {
  void* const found = dlsym(library, symbol);
  if (!found)
    throw Error(ErrorKind::kUnsupported,
                std::string("the NVSHMEM that was loaded has no ") + symbol + "; it is too old");
  function = reinterpret_cast<Result (*)(Arguments...)>(found);
}

}  // namespace

Table load_library() {
  void* const library = open();
  Table table;
#define ALTORCH_NVSHMEM_RESOLVE(name, symbol, result, arguments) resolve(library, symbol, table.name);
  ALTORCH_NVSHMEM_FUNCTIONS(ALTORCH_NVSHMEM_RESOLVE)
#undef ALTORCH_NVSHMEM_RESOLVE
  table.set_device = CudaRuntime::instance().set_device();
  return table;
}

}  // namespace altorch::nvshmem
