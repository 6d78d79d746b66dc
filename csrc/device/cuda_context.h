// SPDX-License-Identifier: BSD-3-Clause
// A context of CUDA on one GPU, and the kernels that are loaded into it.
//
// CUDA holds a context up as a whole: while a thread copies between a stream and memory that is not pinned (`.cpu()`), or
// gives memory back, no other thread can give that context anything, and that may last until another rank has done what it
// waits for. Kernels of a context of its own begin meanwhile, on any memory of the process; copies of the other
// context's memory do not (docs/streams.md).
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
  // torch's too. Throws Error(kTransport), as all members.
  static std::shared_ptr<CudaContext> primary(int device);
  // Beside that, for whoever must never be held up by it: one for all who have it. It takes some 500 MB of the GPU.
  static std::shared_ptr<CudaContext> beside(int device);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;

  // The calling thread's current one, as long as it lives; a primary() that is entered stays it.
  class Current {
   public:
    Current(void* context, bool stays);
    ~Current();
    Current(const Current&) = delete;

   private:
    void* before_ = nullptr;
    bool goes_back_ = false;
  };
  [[nodiscard]] Current enter() const { return {handle_, /*stays=*/is_primary_}; }
  // For who lets something go, and keeps what was current.
  [[nodiscard]] Current visit() const { return {handle_, /*stays=*/false}; }

  // Compiled ahead, or when it first comes. To be entered before.
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
