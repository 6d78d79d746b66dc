// SPDX-License-Identifier: BSD-3-Clause
// A real GPU for tests without torch: what CudaDevice leaves to torch (starting CUDA, waits of
// the host), flags, and a watchdog over all of it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/flag.h"
#include "device/cuda_device.h"
#include "support/test_watchdog.h"

namespace altorch {

class Gpu {
 public:
  static constexpr int kFlags = 32;

  // Why there is none that can be tested, in a sentence's end, or nothing.
  static std::optional<std::string> unsupported_reason();
  // Why it can run no kernels.
  static std::optional<std::string> kernel_unsupported_reason();

  Gpu();
  ~Gpu();

  CudaDevice& device() { return device_; }
  Stream make_stream();
  // In pinned memory. What waits for them goes on when the watchdog has lost its timeout.
  std::span<Flag, kFlags> flags() { return std::span<Flag, kFlags>(flags_, kFlags); }
  // What kernels look at to give up: not 0 then.
  std::uint32_t* aborted() { return &flags_[kFlags].count; }

  // Waits for the stream; false where the watchdog had to help. Throws what CUDA says of failed
  // work.
  bool finish(Stream stream);

 private:
  CudaDevice device_{0};
  PinnedMemory pinned_;
  Flag* flags_;  // one more than kFlags
  std::vector<Stream> streams_;
  TestWatchdog watchdog_;
};

}  // namespace altorch
