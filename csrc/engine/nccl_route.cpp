#include "engine/nccl_route.h"

#include "engine/collective.h"

namespace altorch {

std::optional<std::string> NcclRoute::obstacle_to(const Operation& operation) {
  return nccl::Communicator::obstacle(call_of(operation));
}

void NcclRoute::enqueue(std::span<const Operation> operations, void* stream) {
  if (operations.size() == 1) {
    const CollectiveCall call = call_of(operations.front());
    return communicator_->enqueue({&call, 1}, stream);
  }
  std::vector<CollectiveCall> calls;
  for (const Operation& operation : operations) calls.push_back(call_of(operation));
  communicator_->enqueue(calls, stream);
}

std::optional<Error> NcclRoute::failure() {
  if (auto text = communicator_->async_error()) return Error(ErrorKind::kTransport, *text);
  return std::nullopt;
}

void NcclRoute::abort(const std::string&) { communicator_->abort(); }

}  // namespace altorch
