// SPDX-License-Identifier: BSD-3-Clause
// Where the routes of a group get their GPUs from, and what they are told of them: CUDA, and fakes in the C++ tests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/device.h"

namespace altorch {

// Thread rules: any thread. Reasons are clauses.
struct GpuSource {
  // `shared`: other processes use the GPU too. Throws Error(kUnsupported).
  std::function<std::unique_ptr<Device>(int index, bool shared)> open;
  // In a context beside the one that torch uses (device/cuda_context.h), for kernels alone. Throws Error(kUnsupported).
  std::function<std::unique_ptr<Device>(int index)> open_beside;
  // Why device `index` cannot serve, or nothing.
  std::function<std::optional<std::string>(int index)> unsupported_reason;
  // Why no kernel can be had, or nothing.
  std::function<std::optional<std::string>()> kernel_unsupported_reason;
  // Why other processes cannot map memory of device `index`, or nothing.
  std::function<std::optional<std::string>(int index)> export_unsupported_reason;
  // Text that names the GPU in every process.
  std::function<std::string(int index)> identity;
  // Whether kernels of several processes run on it at the same time.
  std::function<bool(int index)> together;
  // How many blocks of threads run on it at once at least: its multiprocessors; 0: nobody knows.
  std::function<int(int index)> multiprocessors = nullptr;
  // The other GPUs that lines may go to from device `index`, by identity: see CudaDevice::links.
  std::function<std::vector<std::string>(int index)> links = nullptr;
  // Why kernels on device `index` cannot do atomic operations on memory of that GPU, or nothing.
  std::function<std::optional<std::string>(int index, const std::string& identity)>
      atomics_unsupported_reason = nullptr;
  // Processes with the same text share memory.
  std::function<std::string()> node;
};

// Those of this machine.
GpuSource cuda_gpus();

}  // namespace altorch
