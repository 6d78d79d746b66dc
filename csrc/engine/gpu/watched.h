// SPDX-License-Identifier: BSD-3-Clause
// Something that is under way on a GPU, for whoever looks after it (backend/cuda/cuda_watch.h).
#pragma once

namespace altorch {

// Both are called again and again, by a thread each, for as long as they return true.
class Watched {
 public:
  virtual ~Watched() = default;
  // May ask CUDA, which may hold up who asks.
  virtual bool poll() { return false; }
  // Calls nothing of CUDA's, whatever holds up the others.
  virtual bool look() = 0;
};

}  // namespace altorch
