// SPDX-License-Identifier: BSD-3-Clause
#include "device/nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>
#include <iterator>
#include <vector>

#include "base/error.h"

namespace altorch {
namespace {

using Result = int;  // nvrtcResult
using Program = void*;

#define ALTORCH_NVRTC_FUNCTIONS(X)                                                                         \
  X(error_string, "nvrtcGetErrorString", const char*, (Result))                                            \
  X(create, "nvrtcCreateProgram", Result,                                                                  \
    (Program*, const char* source, const char* name, int headers, const char* const*, const char* const*)) \
  X(destroy, "nvrtcDestroyProgram", Result, (Program*))                                                    \
  X(compile, "nvrtcCompileProgram", Result, (Program, int number, const char* const* options))             \
  X(log_size, "nvrtcGetProgramLogSize", Result, (Program, std::size_t*))                                   \
  X(log, "nvrtcGetProgramLog", Result, (Program, char*))                                                   \
  X(cubin_size, "nvrtcGetCUBINSize", Result, (Program, std::size_t*))                                      \
  X(cubin, "nvrtcGetCUBIN", Result, (Program, char*))

struct Nvrtc {
#define ALTORCH_NVRTC_MEMBER(name, symbol, result, arguments) result(*name) arguments = nullptr;
  ALTORCH_NVRTC_FUNCTIONS(ALTORCH_NVRTC_MEMBER)
#undef ALTORCH_NVRTC_MEMBER
  std::string missing;
};

// torch finds its copy by a path of its own, beside the CUDA runtime that it has loaded. Tests
// without torch take that of a CUDA installation.
std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  for (const std::string major : {"13", "12"}) {
    const std::string name = "libnvrtc.so." + major;
    const std::string runtime = "libcudart.so." + major;
    if (void* loaded = dlopen(runtime.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
      Dl_info where{};
      if (dladdr(dlsym(loaded, "cudaGetLastError"), &where) && where.dli_fname) {
        const std::string path = where.dli_fname;
        const std::string folder = path.substr(0, path.rfind('/') + 1);
        paths.push_back(folder + name);
        paths.push_back(folder + "../../cuda_nvrtc/lib/" + name);
      }
      dlclose(loaded);
    }
    paths.push_back(name);
    for (const char* home : {static_cast<const char*>(std::getenv("CUDA_HOME")), "/usr/local/cuda"}) {
      if (!home) continue;
      for (const char* folder : {"/lib64/", "/lib/"}) paths.push_back(std::string(home) + folder + name);
    }
  }
  return paths;
}

Nvrtc load() {
  Nvrtc nvrtc;
  void* library = nullptr;
  for (const std::string& path : candidates()) {
    library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library) break;
  }
  if (!library)
    nvrtc.missing = "NVRTC (libnvrtc.so), which compiles the kernels, was not found beside torch's CUDA";
  const auto find = [&](const char* symbol, auto& function) {
    if (library) function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (!function && nvrtc.missing.empty()) nvrtc.missing = std::string("NVRTC has no ") + symbol;
  };
#define ALTORCH_NVRTC_FIND(name, symbol, result, arguments) find(symbol, nvrtc.name);
  ALTORCH_NVRTC_FUNCTIONS(ALTORCH_NVRTC_FIND)
#undef ALTORCH_NVRTC_FIND
  return nvrtc;
}

const Nvrtc& nvrtc() {
  static const Nvrtc instance = load();
  return instance;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::kUnsupported, "A GPU kernel could not be compiled: " + what);
}

}  // namespace

std::optional<std::string> nvrtc_unsupported_reason() {
  if (nvrtc().missing.empty()) return std::nullopt;
  return nvrtc().missing;
}

std::string compile_kernel(const Kernel& kernel, int architecture) {
  const Nvrtc& compiler = nvrtc();
  if (!compiler.missing.empty()) refuse(compiler.missing);
  Program program = nullptr;
  const auto check = [&](const char* call, Result result) {
    if (result == 0) return;
    std::string text = std::string(call) + ": " + compiler.error_string(result);
    std::size_t length = 0;
    if (program && compiler.log_size(program, &length) == 0 && length > 1) {
      std::string log(length, '\0');
      compiler.log(program, log.data());
      text += "; " + log;
    }
    if (program) compiler.destroy(&program);
    refuse(kernel.symbol + " for sm_" + std::to_string(architecture) + ": " + text);
  };
  const std::string source = kernel_source() + kernel.definition;
  check("nvrtcCreateProgram",
        compiler.create(&program, source.c_str(), "altorch_kernels.cu", 0, nullptr, nullptr));
  const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
  // Without fused multiply-add the results are those of the host, bit by bit. Before 13.1 NVRTC
  // takes a generic lambda within a function of the device for one of the host.
  const char* options[] = {target.c_str(), "--std=c++20", "--fmad=false", "-default-device"};
  check("nvrtcCompileProgram", compiler.compile(program, std::size(options), options));
  std::size_t length = 0;
  check("nvrtcGetCUBINSize", compiler.cubin_size(program, &length));
  std::string cubin(length, '\0');
  check("nvrtcGetCUBIN", compiler.cubin(program, cubin.data()));
  compiler.destroy(&program);
  return cubin;
}

}  // namespace altorch
