// SPDX-License-Identifier: BSD-3-Clause
// The few calls of the CUDA runtime that torch's device-independent interface lacks, taken from the
// copy that torch has loaded: nothing is linked, so that one build serves machines with and without
// CUDA.
#pragma once

namespace altorch {

// Thread rules: any thread.
class CudaRuntime {
 public:
  static const CudaRuntime& instance();

  // cudaSetDevice; null where there is no CUDA runtime.
  int (*set_device() const)(int) { return set_device_; }
  // False too where there is no CUDA runtime.
  bool is_capturing(void* stream) const;

  // While it lives, this thread may query events although another thread captures a graph.
  class RelaxedCapture {
   public:
    RelaxedCapture();
    ~RelaxedCapture();

   private:
    int mode_ = 2;  // cudaStreamCaptureModeRelaxed
  };

 private:
  CudaRuntime();
  int (*stream_is_capturing_)(void* stream, int* status) = nullptr;
  int (*set_device_)(int device) = nullptr;
  int (*exchange_capture_mode_)(int* mode) = nullptr;
};

}  // namespace altorch
