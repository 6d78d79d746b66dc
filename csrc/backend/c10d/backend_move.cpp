// SPDX-License-Identifier: BSD-3-Clause
// The collectives that only move data.
#include "backend/c10d/issue.h"

namespace altorch::backend {

AlBackend::WorkPtr AlBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return issue(c10d::OpType::BROADCAST, OpKind::kBroadcast, cuda_device_of(tensors), options.timeout,
               options.asyncOp, [&](PreparedCall& call) {
                 const at::Tensor& tensor = only_tensor(tensors, "broadcast's tensor");
                 check_rank(options.rootRank, "src");
                 const Block block(tensor);
                 call.operation.dtype = dtype_of(tensor);
                 call.operation.root = static_cast<int>(options.rootRank);
                 call.operation.output = block.data();
                 call.operation.count = block.numel();
                 call.touch(tensor, block.tensor());
                 call.outputs.push_back(tensor);
                 if (!block.staged()) return;
                 if (options.rootRank == getRank()) {
                   call.loads = {block};
                 } else {
                   call.stores = {block};
                 }
               });
}

AlBackend::WorkPtr AlBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) {
  return issue(c10d::OpType::ALLGATHER, OpKind::kAllGather, cuda_device_of(inputs, outputs), options.timeout,
               options.asyncOp, [&](PreparedCall& call) {
                 const at::Tensor& input = only_tensor(inputs, "all_gather's tensor");
                 check_list(outputs, getSize(), input, "all_gather's tensor_list");
                 bool even = true;
                 auto counts = counts_of(outputs[0], even);
                 check_numel(input, counts[static_cast<std::size_t>(getRank())], "all_gather's tensor",
                             "its own entry of tensor_list");
                 const Block from(input), to(outputs[0]);
                 call.operation.dtype = dtype_of(input);
                 call.operation.input = from.data();
                 call.operation.output = to.data();
                 call.operation.count = input.numel();
                 if (!even) call.output_counts = std::move(counts);
                 call.touch(input, from.tensor(), to.tensor());
                 call.keep.append(outputs[0].begin(), outputs[0].end());
                 call.outputs = outputs[0];
                 if (from.staged()) call.loads = {from};
                 if (to.staged()) call.stores = {to};
               });
}

AlBackend::WorkPtr AlBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::AllgatherOptions& options) {
  return issue(c10d::OpType::_ALLGATHER_BASE, OpKind::kAllGather, cuda_device_of(output, input),
               options.timeout, options.asyncOp, [&](PreparedCall& call) {
                 check_tensor(output, "all_gather_into_tensor's output");
                 check_tensor(input, "all_gather_into_tensor's input");
                 check_same_dtype(output, input, "all_gather_into_tensor's output");
                 check_numel(output, input.numel() * getSize(), "all_gather_into_tensor's output",
                             "input x world size");
                 const Block from(input), to(output);
                 call.operation.dtype = dtype_of(input);
                 call.operation.input = from.data();
                 call.operation.output = to.data();
                 call.operation.count = input.numel();
                 call.touch(output, to.tensor(), input, from.tensor());
                 call.outputs.push_back(output);
                 if (from.staged()) call.loads = {from};
                 if (to.staged()) call.stores = {to};
               });
}

AlBackend::WorkPtr AlBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  // outputs[rank][i] belongs to inputs[i].
  guarded([&] {
    if (static_cast<int>(outputs.size()) == getSize()) return;
    throw Error(ErrorKind::kInvalidArgument, "all_gather_coalesced: one output list per rank is expected");
  });
  return coalesce(OpKind::kAllGather, inputs, options.asyncOp, [&](std::size_t i) {
    TensorLists one(1);
    for (const auto& of_rank : outputs) {
      TORCH_CHECK_VALUE(i < of_rank.size(),
                        "altorch: all_gather_coalesced: an output list is shorter than the inputs");
      one[0].push_back(of_rank[i]);
    }
    Tensors input = {inputs[i]};
    return allgather(one, input, options);
  });
}

AlBackend::WorkPtr AlBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& options) {
  guarded([&] { check_pairs(outputs, inputs, "all_gather_into_tensor_coalesced"); });
  return coalesce(OpKind::kAllGather, outputs, options.asyncOp,
                  [&](std::size_t i) { return _allgather_base(outputs[i], inputs[i], options); });
}

AlBackend::WorkPtr AlBackend::gather(TensorLists& outputs, Tensors& inputs,
                                     const c10d::GatherOptions& options) {
  return issue(c10d::OpType::GATHER, OpKind::kGather, cuda_device_of(inputs, outputs), options.timeout,
               options.asyncOp, [&](PreparedCall& call) {
                 const at::Tensor& input = only_tensor(inputs, "gather's tensor");
                 check_rank(options.rootRank, "dst");
                 const Block from(input);
                 call.operation.dtype = dtype_of(input);
                 call.operation.root = static_cast<int>(options.rootRank);
                 call.operation.input = from.data();
                 call.operation.count = input.numel();
                 call.touch(input, from.tensor());
                 if (from.staged()) call.loads = {from};
                 if (options.rootRank != getRank()) {
                   if (outputs.empty() || (outputs.size() == 1 && outputs[0].empty())) return;
                   throw Error(ErrorKind::kInvalidArgument,
                               "gather_list must be given on the destination rank only");
                 }
                 check_list(outputs, getSize(), input, "gather's gather_list");
                 bool even = true;
                 call.output_counts = counts_of(outputs[0], even);
                 check_numel(input, call.output_counts[static_cast<std::size_t>(getRank())],
                             "gather's tensor", "its own entry of gather_list");
                 const Block to(outputs[0]);
                 call.operation.output = to.data();
                 call.touch(to.tensor());
                 call.keep.append(outputs[0].begin(), outputs[0].end());
                 call.outputs = outputs[0];
                 if (to.staged()) call.stores = {to};
               });
}

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
AlBackend::WorkPtr AlBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                            const c10d::GatherOptions& options) {
  return issue(c10d::OpType::GATHER, OpKind::kGather, cuda_device_of(output, input), options.timeout,
               options.asyncOp, [&](PreparedCall& call) {
                 check_tensor(input, "gather_single's tensor");
                 check_rank(options.rootRank, "dst");
                 const Block from(input);
                 call.operation.dtype = dtype_of(input);
                 call.operation.root = static_cast<int>(options.rootRank);
                 call.operation.input = from.data();
                 call.operation.count = input.numel();
                 call.touch(input, from.tensor());
                 if (from.staged()) call.loads = {from};
                 if (options.rootRank != getRank()) return;  // torch passes an empty tensor as output then
                 check_tensor(output, "gather_single's gather_tensor");
                 check_same_dtype(output, input, "gather_single's gather_tensor");
                 check_numel(output, input.numel() * getSize(), "gather_single's gather_tensor",
                             "tensor x world size");
                 const Block to(output);
                 call.operation.output = to.data();
                 call.output_counts.assign(static_cast<std::size_t>(getSize()), input.numel());
                 call.touch(output, to.tensor());
                 call.outputs.push_back(output);
                 if (to.staged()) call.stores = {to};
               });
}
#endif

AlBackend::WorkPtr AlBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                      const c10d::ScatterOptions& options) {
  return issue(c10d::OpType::SCATTER, OpKind::kScatter, cuda_device_of(outputs, inputs), options.timeout,
               options.asyncOp, [&](PreparedCall& call) {
                 const at::Tensor& output = only_tensor(outputs, "scatter's tensor");
                 check_rank(options.rootRank, "src");
                 const Block to(output);
                 call.operation.dtype = dtype_of(output);
                 call.operation.root = static_cast<int>(options.rootRank);
                 call.operation.output = to.data();
                 call.operation.count = output.numel();
                 call.touch(output, to.tensor());
                 call.outputs.push_back(output);
                 if (to.staged()) call.stores = {to};
                 if (options.rootRank != getRank()) {
                   if (inputs.empty() || (inputs.size() == 1 && inputs[0].empty())) return;
                   throw Error(ErrorKind::kInvalidArgument,
                               "scatter_list must be given on the source rank only");
                 }
                 check_list(inputs, getSize(), output, "scatter's scatter_list");
                 bool even = true;
                 call.input_counts = counts_of(inputs[0], even);
                 check_numel(output, call.input_counts[static_cast<std::size_t>(getRank())],
                             "scatter's tensor", "its own entry of scatter_list");
                 const Block from(inputs[0]);
                 call.operation.input = from.data();
                 call.touch(from.tensor());
                 call.keep.append(inputs[0].begin(), inputs[0].end());
                 if (from.staged()) call.loads = {from};
               });
}

AlBackend::WorkPtr AlBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllToAllOptions& options) {
  return issue(c10d::OpType::ALLTOALL, OpKind::kAllToAll, cuda_device_of(outputs, inputs), options.timeout,
               options.asyncOp, [&](PreparedCall& call) {
                 TensorLists output_lists = {outputs}, input_lists = {inputs};
                 if (outputs.empty())
                   throw Error(ErrorKind::kInvalidArgument, "all_to_all's output_tensor_list is empty");
                 check_list(output_lists, getSize(), outputs[0], "all_to_all's output_tensor_list");
                 check_list(input_lists, getSize(), outputs[0], "all_to_all's input_tensor_list");
                 bool even_in = true, even_out = true;
                 call.input_counts = counts_of(inputs, even_in);
                 call.output_counts = counts_of(outputs, even_out);
                 const Block from(inputs), to(outputs);
                 call.operation.dtype = dtype_of(outputs[0]);
                 call.operation.input = from.data();
                 call.operation.output = to.data();
                 call.operation.count = outputs[0].numel();
                 call.touch(from.tensor(), to.tensor());
                 call.keep.append(inputs.begin(), inputs.end());
                 call.keep.append(outputs.begin(), outputs.end());
                 call.outputs = outputs;
                 if (from.staged()) call.loads = {from};
                 if (to.staged()) call.stores = {to};
               });
}

AlBackend::WorkPtr AlBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                            std::vector<std::int64_t>& output_splits,
                                            std::vector<std::int64_t>& input_splits,
                                            const c10d::AllToAllOptions& options) {
  return issue(
      c10d::OpType::ALLTOALL_BASE, OpKind::kAllToAll, cuda_device_of(output, input), options.timeout,
      options.asyncOp, [&](PreparedCall& call) {
        check_tensor(output, "all_to_all_single's output");
        check_tensor(input, "all_to_all_single's input");
        check_same_dtype(input, output, "all_to_all_single's input");
        const Block from(input), to(output);
        call.operation.dtype = dtype_of(output);
        call.operation.input = from.data();
        call.operation.output = to.data();
        call.input_counts = split_counts(input, input_splits, getSize(), "all_to_all_single's input");
        call.output_counts = split_counts(output, output_splits, getSize(), "all_to_all_single's output");
        if (input_splits.empty() && output_splits.empty()) {
          call.operation.count = input.numel() / getSize();
          check_numel(output, input.numel(), "all_to_all_single's output",
                      "its input (no split sizes were given)");
          call.input_counts.clear();
          call.output_counts.clear();
        }
        call.touch(output, to.tensor(), input, from.tensor());
        call.outputs.push_back(output);
        if (from.staged()) call.loads = {from};
        if (to.staged()) call.stores = {to};
      });
}

}  // namespace altorch::backend
