// Compiles the GPU kernels when they are first needed, with the NVRTC that comes with torch or with CUDA.
#pragma once

#include <optional>
#include <string>

namespace altorch {

struct CompiledKernel {
  std::string cubin;
  std::string symbol;  // in the cubin
};

// Why nothing can be compiled, in a clause, or nothing. Thread rules: any thread.
std::optional<std::string> nvrtc_obstacle();

// `expression` names an instance of a template in `source`; `architecture` is for instance 90 for sm_90.
// Needs no GPU. Throws Error(kUnsupported) where there is no NVRTC, or none that knows the architecture, with
// what it says. Thread rules: any thread.
CompiledKernel compile_kernel(const std::string& source, const std::string& expression, int architecture);

}  // namespace altorch
