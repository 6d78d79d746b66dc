// SPDX-License-Identifier: BSD-3-Clause
// What a group brings along for its routes of CUDA tensors.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gpu/gpu_source.h"
#include "gpu/nccl/nccl_comm.h"

namespace altorch {

class Communicator;

struct GpuRouteOptions {
  // Makes a further group of these ranks, ascending, on host memory; collective over them.
  std::function<std::shared_ptr<Communicator>(const std::vector<int>& ranks)> make_carrier;
  nccl::Knobs nccl;
  bool marks_results = true;  // of calls over NCCL that are aborted
  // Made already, as a part of another group's; null: made when it is needed.
  std::unique_ptr<nccl::NcclComm> nccl_communicator;
  // Told of NCCL's communicator when there is one, and (false) before it ends.
  std::function<void(nccl::Comm, bool exists)> publish_nccl;
  // Called when a call of host_relay has failed, before its streams go on. Any thread; it must not
  // wait. May be empty.
  std::function<void(const std::string& why)> on_relay_failure;
  // Called before a route is opened, which holds the host up until all ranks have come.
  std::function<void()> before_opening;
  GpuSource gpus = cuda_gpus();
};

}  // namespace altorch
