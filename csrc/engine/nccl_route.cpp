#include "engine/nccl_route.h"

#include "engine/collective.h"

namespace altorch {

std::optional<std::string> NcclRoute::obstacle_to(const Operation& operation) {
  return nccl::Communicator::obstacle(operation);
}

void NcclRoute::enqueue(std::span<const Operation> operations, void* stream) {
  const Call& first = operations.front();
  if (operations.size() == 1) return communicator_->enqueue({&first, 1}, stream);
  const std::vector<Call> calls(operations.begin(), operations.end());
  communicator_->enqueue(calls, stream);
}

std::optional<Error> NcclRoute::failure() {
  if (auto text = communicator_->async_error()) return Error(ErrorKind::kTransport, *text);
  return std::nullopt;
}

void NcclRoute::abort(const std::string&) { communicator_->abort(); }

}  // namespace altorch
