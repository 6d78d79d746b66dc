// SPDX-License-Identifier: BSD-3-Clause
#include "support/gpu.h"

#include <dlfcn.h>

#include <cstdlib>

#include "device/cuda_driver.h"
#include "device/nvrtc.h"

namespace altorch {
namespace {

constexpr std::chrono::seconds kPatience{30};

// Functions of the driver that altorch itself does without.
struct More {
  cuda::Result (*init)(unsigned flags) = nullptr;
  cuda::Result (*synchronize)(Stream stream) = nullptr;
};

const More& more() {
  static const More functions = [] {
    More found;
    void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    const auto find = [&](const char* symbol, auto& function) {
      if (library) function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    };
    find("cuInit", found.init);
    find("cuStreamSynchronize", found.synchronize);
    return found;
  }();
  return functions;
}

// torch does this for altorch.
std::optional<std::string> start_cuda() {
  // Streams that share a queue of the hardware wait for one another, and 8 queues are the default.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const cuda::Result result = more().init(0);
  if (result == cuda::kSuccess) return std::nullopt;
  const char* text = nullptr;
  cuda::driver().error_string(result, &text);
  return std::string("no GPU: cuInit says ") + (text ? text : "error " + std::to_string(result));
}

}  // namespace

std::optional<std::string> Gpu::unsupported_reason() {
  if (cuda::driver().missing) return "no GPU: " + *cuda::driver().missing;
  static const std::optional<std::string> failure = start_cuda();
  return failure ? failure : CudaDevice::unsupported_reason(0);
}

std::optional<std::string> Gpu::kernel_unsupported_reason() {
  auto why = nvrtc_unsupported_reason();
  if (why) *why += "; without torch, CUDA_HOME or LD_LIBRARY_PATH says where it is";
  return why;
}

Gpu::Gpu()
    : pinned_(device_.pin((kFlags + 1) * sizeof(Flag))),
      flags_(reinterpret_cast<Flag*>(pinned_.get())),
      watchdog_(kPatience, [this] {
        // Ahead of whatever is waited for.
        for (Flag& flag : flags()) flag.raise(flag.count + (1u << 30));
        flags_[kFlags].raise(1);
      }) {}

// Releasing memory waits for streams as well, and nothing would watch it any more.
Gpu::~Gpu() {
  for (Stream stream : streams_) more().synchronize(stream);
}

Stream Gpu::make_stream() { return streams_.emplace_back(device_.make_stream()); }

bool Gpu::finish(Stream stream) {
  cuda::driver().check("cuStreamSynchronize", more().synchronize(stream));
  watchdog_.progress();
  return !watchdog_.rescued();
}

}  // namespace altorch
