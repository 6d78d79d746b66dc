// SPDX-License-Identifier: BSD-3-Clause
// The collectives that reduce.
#include <ATen/ATen.h>

#include "backend/c10d/issue.h"
#include "backend/c10d/premul.h"
#include "reduction/exact_mode.h"
#include "reduction/reduce.h"

namespace altorch::backend {

static_assert(static_cast<int>(c10d::ReduceOp::SUM) == static_cast<int>(ReduceOp::kSum) &&
              static_cast<int>(c10d::ReduceOp::BXOR) == static_cast<int>(ReduceOp::kBxor) &&
              static_cast<int>(c10d::ReduceOp::PREMUL_SUM) == static_cast<int>(ReduceOp::kPremulSum));

namespace {

const PremulSupplement* factor_of(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::PREMUL_SUM ? static_cast<const PremulSupplement*>(op.supplement_.get())
                                              : nullptr;
}

// A reduction whose factor, if it is a tensor on a GPU, has been read. That waits for the caller's
// stream, so it happens before the call has its place: the stream may wait for a call of another
// thread, which comes behind.
class KnownReduction {
 public:
  explicit KnownReduction(const c10d::ReduceOp& op) : given_(op) {
    const PremulSupplement* const factor = factor_of(op);
    if (factor && factor->tensor_factor.defined() && !factor->tensor_factor.is_cpu()) read(*factor);
  }
  // Throws where the factor could not be read: within the call, which all ranks are told that this
  // one refuses.
  const c10d::ReduceOp& get() const {
    if (unread_) throw Error(*unread_);
    return read_ ? *read_ : given_;
  }

 private:
  void read(const PremulSupplement& factor) {
    try {
      read_ = given_;  // torch's constructor of ReduceOp drops the factor
      read_->supplement_ = c10::make_intrusive<PremulSupplement>(factor.tensor_factor.item<double>());
    } catch (const c10::Error& error) {
      unread_ = Error(ErrorKind::kUnsupported,
                      std::string("the factor of PREMUL_SUM is a tensor on a GPU and cannot be read (") +
                          error.what_without_backtrace() + "); give a number, as a CUDA graph needs it");
    }
  }

  const c10d::ReduceOp& given_;
  std::optional<c10d::ReduceOp> read_;
  std::optional<Error> unread_;
};

}  // namespace

void AlBackend::set_reduction(Operation& operation, const c10d::ReduceOp& op,
                              const at::Tensor& tensor) const {
  operation.dtype = dtype_of(tensor);
  if (static_cast<int>(op.op_) >= kTorchReduceOpCount) {  // the enumeration is unsigned
    throw Error(ErrorKind::kInvalidArgument, "the reduction is none that torch.distributed defines");
  }
  operation.op = static_cast<ReduceOp>(op.op_);
  if (operation.op == ReduceOp::kPremulSum) {
    const PremulSupplement* const factor = factor_of(op);
    if (!factor) throw Error(ErrorKind::kInvalidArgument, "PREMUL_SUM comes without its factor");
    operation.factor =
        factor->tensor_factor.defined() ? factor->tensor_factor.item<double>() : factor->double_factor;
  }
  const ReduceOp once = rounded_once(operation.op, operation.dtype);
  if (can_reduce(operation.dtype, once)) {
    operation.op = op_for_call(operation.kind, operation.op, operation.dtype, has_exact_sums());
    return;
  }
  // As torch's own backends have it: a type that cannot be averaged is a wrong type, bits of floats
  // a wrong call.
  const auto kind = operation.op == ReduceOp::kAvg ? ErrorKind::kInvalidType : ErrorKind::kInvalidArgument;
  throw Error(kind, std::string(name_of(operation.op)) + " is not defined for " + name_of(operation.dtype) +
                        "; convert the tensor or choose another reduction");
}

AlBackend::WorkPtr AlBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  // torch asks so for sparse tensors on the CPU.
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].is_sparse())
    return allreduce_sparse(tensors, options);
  return allreduce_by_way_of(at::Tensor(), tensors, options);
}

// `copy`: of the tensor, where its own memory cannot be used.
AlBackend::WorkPtr AlBackend::allreduce_by_way_of(const at::Tensor& copy, const Tensors& tensors,
                                                  const c10d::AllreduceOptions& options) {
  const KnownReduction reduction(options.reduceOp);
  return issue(c10d::OpType::ALLREDUCE, OpKind::kAllReduce, cuda_device_of(tensors), options.timeout,
               options.asyncOp, [&](PreparedCall& call) {
                 const at::Tensor& tensor = only_tensor(tensors, "all_reduce's tensor");
                 set_reduction(call.operation, reduction.get(), tensor);
                 const Block block = copy.defined() ? Block(tensor, copy) : Block(tensor);
                 call.operation.input = call.operation.output = block.data();
                 call.operation.count = block.numel();
                 call.touch(tensor, block.tensor());
                 call.outputs.push_back(tensor);
                 if (!block.staged()) return;
                 if (!copy.defined()) call.loads = {block};
                 call.stores = {block};
               });
}

AlBackend::WorkPtr AlBackend::allreduce_coalesced(Tensors& tensors,
                                                  const c10d::AllreduceCoalescedOptions& options) {
  // Each reduces the values that came in, so they are taken before the first is written.
  Tensors copies(tensors.size());
  const auto shared = overlapping(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (shared[i]) copies[i] = tensors[i].detach().clone(at::MemoryFormat::Contiguous);
  }
  return coalesce(OpKind::kAllReduce, tensors, options.asyncOp,
                  [&](std::size_t i) { return allreduce_by_way_of(copies[i], {tensors[i]}, options); });
}

at::Tensor AlBackend::scan(const at::Tensor& tensor, int op, bool exclusive) {
  at::Tensor result;
  issue(c10d::OpType::UNKNOWN, exclusive ? OpKind::kExscan : OpKind::kScan, cuda_device_of(tensor),
        c10d::kUnsetTimeout,
        /*async=*/false, [&](PreparedCall& call) {
          check_tensor(tensor, "scan's tensor");
          if (at::GradMode::is_enabled() && tensor.requires_grad()) {
            throw Error(ErrorKind::kUnsupported,
                        "scan has no gradient, and its tensor requires one; call it under torch.no_grad()");
          }
          if (op < 0 || op >= static_cast<int>(ReduceOp::kPremulSum) ||
              op == static_cast<int>(ReduceOp::kAvg)) {
            throw Error(
                ErrorKind::kInvalidArgument,
                "scan takes SUM, PRODUCT, MIN, MAX, BAND, BOR and BXOR; divide or multiply its result");
          }
          set_reduction(call.operation, c10d::ReduceOp(static_cast<c10d::ReduceOp::RedOpType>(op)), tensor);
          result = tensor.detach().clone(at::MemoryFormat::Contiguous);
          call.operation.input = call.operation.output = result.data_ptr();
          call.operation.count = result.numel();
          call.touch(result);
          call.outputs.push_back(result);
        });
  return result;
}

AlBackend::WorkPtr AlBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const KnownReduction reduction(options.reduceOp);
  return issue(c10d::OpType::REDUCE, OpKind::kReduce, cuda_device_of(tensors), options.timeout,
               options.asyncOp, [&](PreparedCall& call) {
                 const at::Tensor& tensor = only_tensor(tensors, "reduce's tensor");
                 check_rank(options.rootRank, "dst");
                 set_reduction(call.operation, reduction.get(), tensor);
                 const Block block(tensor);
                 call.operation.root = static_cast<int>(options.rootRank);
                 call.operation.input = call.operation.output = block.data();
                 call.operation.count = block.numel();
                 call.touch(tensor, block.tensor());
                 call.outputs.push_back(tensor);
                 if (!block.staged()) return;
                 call.loads = {block};
                 if (options.rootRank == getRank()) call.stores = {block};
               });
}

AlBackend::WorkPtr AlBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                             const c10d::ReduceScatterOptions& options) {
  const KnownReduction reduction(options.reduceOp);
  return issue(c10d::OpType::REDUCE_SCATTER, OpKind::kReduceScatter, cuda_device_of(outputs, inputs),
               options.timeout, options.asyncOp, [&](PreparedCall& call) {
                 const at::Tensor& output = only_tensor(outputs, "reduce_scatter's output");
                 check_list(inputs, getSize(), output, "reduce_scatter's input_list");
                 set_reduction(call.operation, reduction.get(), output);
                 bool even = true;
                 auto counts = counts_of(inputs[0], even);
                 const auto mine = counts[static_cast<std::size_t>(getRank())];
                 check_numel(output, mine, "reduce_scatter's output", "its own entry of input_list");
                 const Block input(inputs[0]), result(output);
                 call.operation.input = input.data();
                 call.operation.output = result.data();
                 call.operation.count = mine;
                 if (!even) call.input_counts = std::move(counts);
                 call.touch(output, input.tensor(), result.tensor());
                 call.keep.append(inputs[0].begin(), inputs[0].end());
                 call.outputs.push_back(output);
                 if (input.staged()) call.loads = {input};
                 if (result.staged()) call.stores = {result};
               });
}

AlBackend::WorkPtr AlBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::ReduceScatterOptions& options) {
  const KnownReduction reduction(options.reduceOp);
  return issue(c10d::OpType::_REDUCE_SCATTER_BASE, OpKind::kReduceScatter, cuda_device_of(output, input),
               options.timeout, options.asyncOp, [&](PreparedCall& call) {
                 check_tensor(output, "reduce_scatter_tensor's output");
                 check_tensor(input, "reduce_scatter_tensor's input");
                 check_same_dtype(input, output, "reduce_scatter_tensor's input");
                 check_numel(input, output.numel() * getSize(), "reduce_scatter_tensor's input",
                             "output x world size");
                 set_reduction(call.operation, reduction.get(), output);
                 const Block from(input), to(output);
                 call.operation.input = from.data();
                 call.operation.output = to.data();
                 call.operation.count = output.numel();
                 call.touch(output, to.tensor(), input, from.tensor());
                 call.outputs.push_back(output);
                 if (from.staged()) call.loads = {from};
                 if (to.staged()) call.stores = {to};
               });
}

AlBackend::WorkPtr AlBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::ReduceScatterOptions& options) {
  guarded([&] { check_pairs(outputs, inputs, "reduce_scatter_tensor_coalesced"); });
  return coalesce(OpKind::kReduceScatter, outputs, options.asyncOp,
                  [&](std::size_t i) { return _reduce_scatter_base(outputs[i], inputs[i], options); });
}

}  // namespace altorch::backend
