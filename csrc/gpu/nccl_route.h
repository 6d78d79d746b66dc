// SPDX-License-Identifier: BSD-3-Clause
// NCCL as a route for operations on device memory.
#pragma once

#include <atomic>

#include "gpu/gpu_route.h"
#include "gpu/gpu_route_options.h"
#include "gpu/nccl/nccl_comm.h"

namespace altorch {

class NcclRoute : public GpuRoute {
 public:
  // `publish`: told of the communicator now, and that it is no more before it ends; may be empty.
  NcclRoute(std::unique_ptr<nccl::NcclComm> communicator,
            std::function<void(nccl::Comm, bool exists)> publish);
  ~NcclRoute() override;

  bool outlived_by_graphs() const override { return true; }  // NCCL keeps what they need
  const char* name() const override { return "nccl"; }
  void enqueue(std::span<const Operation> operations, void* stream) override;
  std::optional<Error> failure() override;
  void abort(const std::string& why) override;
  Held holds() override;

  nccl::NcclComm& communicator() { return *communicator_; }

 private:
  void unpublish();

  const std::unique_ptr<nccl::NcclComm> communicator_;
  const std::function<void(nccl::Comm, bool exists)> publish_;
  std::atomic<bool> published_{true};
};

}  // namespace altorch
