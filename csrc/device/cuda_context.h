// SPDX-License-Identifier: BSD-3-Clause
// A CUDA context on one GPU, and the kernels that are loaded into it.
//
// CUDA blocks a context as a whole: while a thread copies between a stream and memory that is not
// pinned (`.cpu()`), or frees memory, no other thread can give work to that context. That may last
// until another rank has done what the first thread waits for. Kernels of a second context begin
// meanwhile, on any memory of the process; copies of the first context's memory do not
// (docs/streams.md).
//
// Thread rules: any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/kernels/names.h"

namespace altorch {

class CudaContext {
 public:
  // The primary context, which torch uses, too. Throws Error(kTransport), as all members do.
  static std::shared_ptr<CudaContext> primary(int device);
  // A second context, for work that the primary context must never block. All callers share one per
  // GPU. It takes some 500 MB of the GPU.
  static std::shared_ptr<CudaContext> beside(int device);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;

  // Makes a context the calling thread's current one, until the object is destroyed; with `stays`,
  // for good.
  class Current {
   public:
    Current(void* context, bool stays);
    ~Current();
    Current(const Current&) = delete;

   private:
    void* before_ = nullptr;
    bool goes_back_ = false;
  };
  bool is_primary() const { return is_primary_; }
  [[nodiscard]] Current enter() const { return {handle_, /*stays=*/is_primary_}; }
  // For code that frees something: the context that was current before becomes current again.
  [[nodiscard]] Current visit() const { return {handle_, /*stays=*/false}; }

  // The kernel, compiled by the build or when it is first needed. The caller must have entered the
  // context.
  void* kernel(const Kernel& kernel);

 private:
  CudaContext(int device, void* handle, bool is_primary)
      : device_(device), is_primary_(is_primary), handle_(handle) {}
  void* compiled_ahead(const Kernel& kernel);
  void* compiled_now(const Kernel& kernel) const;

  const int device_;
  const bool is_primary_;
  void* const handle_;
  std::mutex loading_;  // guards what follows
  std::map<std::string, void*> loaded_;
  void* ahead_ = nullptr;
  bool tried_ = false;
};

}  // namespace altorch
