// SPDX-License-Identifier: BSD-3-Clause
// Gives the routes of a group their GPUs, and facts about these: CUDA's, or fakes in the C++ tests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "device/device.h"

namespace altorch {

// Thread rules: any thread. Reasons are clauses.
struct GpuSource {
  // `shared`: other processes use the GPU too. Throws Error(kUnsupported).
  std::function<std::unique_ptr<Device>(int index, bool shared)> open;
  // Opens the GPU in a second context beside torch's (device/cuda_context.h), for kernels only.
  // Throws Error(kUnsupported).
  std::function<std::unique_ptr<Device>(int index)> open_beside;
  // Why device `index` cannot serve, or nothing.
  std::function<std::optional<std::string>(int index)> unsupported_reason;
  // Why there can be no kernels, or nothing.
  std::function<std::optional<std::string>()> kernel_unsupported_reason;
  // Why other processes cannot map memory of device `index`, or nothing.
  std::function<std::optional<std::string>(int index)> export_unsupported_reason;
  // A text that identifies the GPU in all processes.
  std::function<std::string(int index)> identity;
  // Whether kernels of several processes run on it at the same time.
  std::function<bool(int index)> mps;
  // The number of its multiprocessors: at least so many thread blocks run on it at once. 0:
  // unknown.
  std::function<int(int index)> multiprocessors = nullptr;
  // The identities of the other GPUs to which LL128 may write from device `index`: see
  // CudaDevice::links.
  std::function<std::vector<std::string>(int index)> links = nullptr;
  // Why kernels on device `index` cannot do atomic operations on memory of that GPU, or nothing.
  std::function<std::optional<std::string>(int index, const std::string& identity)>
      atomics_unsupported_reason = nullptr;
  // The one allocation that holds the block, if other processes can map it (cuMemCreate).
  std::function<std::optional<std::span<std::byte>>(const std::byte* block, std::size_t bytes)> allocation =
      nullptr;
  // A text that identifies the node: processes with the same text share memory.
  std::function<std::string()> node;
};

// The CUDA GPUs of this machine.
GpuSource cuda_gpus();

}  // namespace altorch
