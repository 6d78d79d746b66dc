// SPDX-License-Identifier: BSD-3-Clause
// An object with work in flight on a GPU, which the two threads of CudaWatch look after
// (backend/cuda/cuda_watch.h).
#pragma once

namespace altorch {

// CudaWatch calls both functions repeatedly while they return true. Each function has a thread of
// its own.
class Watched {
 public:
  virtual ~Watched() = default;
  // May query CUDA, which may block the calling thread.
  virtual bool poll() { return false; }
  // Never calls CUDA, so it does not block when CUDA blocks other threads.
  virtual bool look() = 0;
};

}  // namespace altorch
