// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/nccl/library.h"

#include <dlfcn.h>

#include <atomic>

#include "base/error.h"
#include "device/cuda_runtime.h"

namespace altorch::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr int kOldest = 21800;

void* open() {
  // What torch_cuda brought along comes first: two copies of NCCL in a process share nothing.
  if (void* loaded = dlopen(kName, RTLD_LAZY | RTLD_NOLOAD)) return loaded;
  if (void* found = dlopen(kName, RTLD_LAZY | RTLD_GLOBAL)) return found;
  const char* reason = dlerror();
  throw Error(ErrorKind::kUnsupported, std::string("NCCL cannot be loaded: ") + (reason ? reason : kName));
}

template <typename Function>
void resolve(void* handle, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, symbol));
  if (function) return;
  throw Error(ErrorKind::kUnsupported,
              std::string("the NCCL that was loaded has no ") + symbol + "; it is too old");
}

Library load() {
  void* handle = open();
  Library loaded;
#define ALTORCH_NCCL_RESOLVE(name, symbol, arguments) resolve(handle, symbol, loaded.table.name);
  ALTORCH_NCCL_FUNCTIONS(ALTORCH_NCCL_RESOLVE)
#undef ALTORCH_NCCL_RESOLVE
#define ALTORCH_NCCL_LOOK_UP(name, symbol, arguments) \
  loaded.table.name = reinterpret_cast<decltype(loaded.table.name)>(dlsym(handle, symbol));
  ALTORCH_NCCL_NEWER_FUNCTIONS(ALTORCH_NCCL_LOOK_UP)
#undef ALTORCH_NCCL_LOOK_UP
  resolve(handle, "ncclGetErrorString", loaded.table.error_string);
  resolve(handle, "ncclGetLastError", loaded.table.last_error);
  loaded.table.set_device = CudaRuntime::instance().set_device();
  loaded.table.get_version(&loaded.version);
  if (loaded.version < kOldest) {
    throw Error(ErrorKind::kUnsupported,
                "NCCL " + loaded.version_text() + " is older than 2.18, which altorch needs");
  }
  return loaded;
}

std::atomic<const Library& (*)()> replacement{nullptr};

}  // namespace

std::string Library::version_text() const {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void replace_library(const Library& (*find)()) { replacement.store(find, std::memory_order_release); }

const Library& library() {
  if (const auto find = replacement.load(std::memory_order_acquire)) return find();
  static const Library instance = load();
  return instance;
}

std::string allocator_unsupported_reason() {
  try {
    if (library().table.allocate && library().table.release) return "";
    return "NCCL " + library().version_text() + " has no ncclMemAlloc (2.19 has)";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace altorch::nccl
