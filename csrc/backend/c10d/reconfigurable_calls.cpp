// SPDX-License-Identifier: BSD-3-Clause
// The calls that a ReconfigurableBackend forwards to its current generation.
#include "backend/c10d/reconfigurable.h"

#ifdef ALTORCH_HAS_RECONFIGURE

namespace altorch::backend {

using WorkPtr = ReconfigurableBackend::WorkPtr;
using This = ReconfigurableBackend;

c10::intrusive_ptr<c10d::Backend> This::split(const c10::intrusive_ptr<c10d::Store>& store,
                                              const std::vector<int>& ranks,
                                              const c10::intrusive_ptr<Options>& options) {
  return use()->split(store, ranks, options);
}

c10::intrusive_ptr<c10d::Backend> This::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                              const c10::intrusive_ptr<Options>& options, const int& rank,
                                              const int& size) {
  return use()->merge(store, options, rank, size);
}

c10::intrusive_ptr<c10d::Window> This::new_window(const std::optional<at::Tensor>& tensor) {
  return use()->new_window(tensor);
}

void This::startCoalescing() { use()->startCoalescing(); }

WorkPtr This::endCoalescing() { return use()->endCoalescing(); }

WorkPtr This::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return use()->allreduce(tensors, options);
}

WorkPtr This::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return use()->allreduce_coalesced(tensors, options);
}

WorkPtr This::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return use()->allreduce_sparse(tensors, options);
}

WorkPtr This::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return use()->reduce(tensors, options);
}

WorkPtr This::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) {
  return use()->reduce_scatter(outputs, inputs, options);
}

WorkPtr This::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) {
  return use()->_reduce_scatter_base(output, input, options);
}

WorkPtr This::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) {
  return use()->reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

WorkPtr This::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return use()->broadcast(tensors, options);
}

WorkPtr This::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return use()->allgather(outputs, inputs, options);
}

WorkPtr This::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return use()->_allgather_base(output, input, options);
}

WorkPtr This::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) {
  return use()->allgather_coalesced(outputs, inputs, options);
}

WorkPtr This::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  return use()->allgather_into_tensor_coalesced(outputs, inputs, options);
}

WorkPtr This::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return use()->gather(outputs, inputs, options);
}

WorkPtr This::gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) {
  return use()->gather_single(output, input, options);
}

WorkPtr This::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  return use()->scatter(outputs, inputs, options);
}

WorkPtr This::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return use()->alltoall(outputs, inputs, options);
}

WorkPtr This::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  return use()->alltoall_base(output, input, output_splits, input_splits, options);
}

WorkPtr This::send(Tensors& tensors, int destination, int tag) {
  return use()->send(tensors, destination, tag);
}

WorkPtr This::recv(Tensors& tensors, int source, int tag) { return use()->recv(tensors, source, tag); }

WorkPtr This::recvAnysource(Tensors& tensors, int tag) { return use()->recvAnysource(tensors, tag); }

WorkPtr This::barrier(const c10d::BarrierOptions& options) { return use()->barrier(options); }

void This::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  use()->monitoredBarrier(options, wait_all_ranks);
}

}  // namespace altorch::backend

#endif
