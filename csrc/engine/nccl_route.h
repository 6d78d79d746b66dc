// NCCL as a route for operations on device memory.
#pragma once

#include "engine/gpu_route.h"
#include "transports/nccl/communicator.h"

namespace altorch {

class NcclRoute : public GpuRoute {
 public:
  explicit NcclRoute(std::unique_ptr<nccl::Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  const char* name() const override { return "nccl"; }
  void enqueue(std::span<const Operation> operations, void* stream) override;
  std::optional<Error> failure() override;
  void abort(const std::string& why) override;

  nccl::Communicator& communicator() { return *communicator_; }

  // Why NCCL cannot carry the operation, as a clause with the next thing to do, or nothing.
  static std::optional<std::string> obstacle_to(const Operation& operation);

 private:
  const std::unique_ptr<nccl::Communicator> communicator_;
};

}  // namespace altorch
