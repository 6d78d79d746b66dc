// SPDX-License-Identifier: BSD-3-Clause
// all_reduce of sparse tensors, in two all_gathers of the group (see sparse_sum.h).
//
// Both have their numbers and their places in the order of the calls from the beginning, because
// what the caller asks for next must not come between them on one rank and not on another: the
// second waits behind a gate until the first says how long it is.
#include <c10/core/DeviceGuard.h>

#include "backend/c10d/issue.h"
#include "backend/c10d/sparse_sum.h"
#include "backend/cuda/cuda_guard.h"
#include "backend/cuda/cuda_work.h"
#include "reduction/exact_mode.h"
#include "runtime/callback_thread.h"

namespace altorch::backend {

struct SparseCall {
  Operation whole, first, second;  // what was asked for, and the two that it is made of
  Flag described;                  // the first is done
  SparseSum sum;
  std::optional<Error> failure;  // the earliest
  bool known_to_all = false;     // every rank has found the failure, so no rank begins the exchange

  SparseCall(SparseSum data, const Operation& asked, std::uint64_t next, int device)
      : whole(asked), first(asked), second(asked), sum(std::move(data)) {
    sum.describe(first);
    second.kind = OpKind::kAllGather;
    second.dtype = DType::kUInt8;
    second.sequence = next;
    second.device = device;
  }
  void note(const std::optional<Error>& error, bool buffers_free) {
    if (!buffers_free) AlWork::leak_intentionally(sum.buffers());
    if (!error || failure) return;
    failure = Error(error->kind(), std::string(error->what()) +
                                       " (it is one of the two all_gathers that make a sparse all_reduce)");
  }
  // If the tensors of the ranks mismatch, all ranks notice that and exchange nothing. If one rank
  // alone fails, its part times out at once, which ends the parts of its peers.
  void prepare(Operation& operation, std::vector<std::int64_t>& counts, const Communicator& group) {
    try {
      if (!failure) {
        if (const auto found = sum.disagreement()) {
          failure = group.explain(whole, *found);
          // Elsewhere the exchange is a call of another kind on some ranks: it ends by its
          // deadline.
          known_to_all = sum.all_on_one_kind_of_device();
          if (known_to_all) return;
        }
        sum.exchange(operation, counts);
        operation.output_counts = counts;
      }
    } catch (const std::exception& error) {
      failure = group.explain(whole, Error(ErrorKind::kTransport, essence(error)));
    }
    if (failure) operation.timeout = std::chrono::milliseconds(1);
  }
  void finish(const Communicator& group) {
    try {
      if (!failure) sum.finish();
    } catch (const std::exception& error) {
      failure = group.explain(whole, Error(ErrorKind::kTransport, essence(error)));
    }
  }
  static std::string essence(const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    return torch_error ? torch_error->what_without_backtrace() : error.what();
  }
};

namespace {

// Queues both; `then` follows the second, on whatever thread has moved it on. It takes the call
// along: the tensors in it may belong to Python, so a thread that must not wait for Python's lock
// must not be the last to let go of it.
std::shared_ptr<Task> submit(const std::shared_ptr<Communicator>& group, std::shared_ptr<SparseCall> call,
                             std::function<void(std::shared_ptr<SparseCall>)> then) {
  auto first = std::make_shared<Task>(), second = std::make_shared<Task>();
  first->operation = call->first;
  second->operation = call->second;
  second->gate = {&call->described, 1};
  first->on_done = [call, second, group](Task& done) {
    call->note(done.error, done.buffers_free);
    call->prepare(second->operation, second->output_counts, *group);
    call->described.raise(1);
  };
  second->on_done = [call = std::move(call), then = std::move(then)](Task& done) mutable {
    call->note(done.error, done.buffers_free);
    if (then) then(std::move(call));
  };
  group->submit(first);
  group->submit(second);
  return second;
}

}  // namespace

AlBackend::WorkPtr AlBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const ProfilerRange range(options_->served_name, name_of(OpKind::kAllReduce));
  return called([&]() -> WorkPtr {
    const int device = cuda_device_of(tensors);  // of the values; the descriptions are exchanged on the CPU
    std::unique_lock turn(order_mutex(kHostDevice));
    std::unique_lock<std::mutex> turn_on_gpu;
    if (device != kHostDevice) turn_on_gpu = std::unique_lock(order_mutex(device));
    Operation whole;
    whole.kind = OpKind::kAllReduce;
    whole.timeout = deadline(options.timeout);
    whole.sequence = communicator_->next_sequence();
    const std::uint64_t next = communicator_->next_sequence(device);
    std::shared_ptr<SparseCall> call;
    try {
      if (tensors.size() != 1) {
        throw Error(ErrorKind::kInvalidArgument, "all_reduce's tensor: one tensor is expected, " +
                                                     std::to_string(tensors.size()) + " were given");
      }
      if (options.reduceOp.op_ != c10d::ReduceOp::SUM) {
        throw Error(
            ErrorKind::kInvalidArgument,
            "only SUM is defined for sparse tensors; divide or scale the sum, or call to_dense() first");
      }
      if (has_exact_sums() && at::isFloatingType(tensors[0].scalar_type())) {
        throw order_dependent_error("a sum of sparse tensors", "call to_dense() first");
      }
      if (windows_.joinable()) {
        throw Error(ErrorKind::kInvalidArgument,
                    "a coalescing window takes no sparse tensors; reduce them outside of it");
      }
      try {
        call = std::make_shared<SparseCall>(SparseSum(tensors[0], getRank(), getSize()), whole, next, device);
      } catch (const c10::Error& error) {
        throw Error(ErrorKind::kInvalidArgument, error.what_without_backtrace());
      }
    } catch (const Error& cause) {
      if (device != kHostDevice) {
        Operation contents = whole;
        contents.sequence = next;
        contents.device = device;
        communicator_->refuse(contents, cause);
      }
      throw communicator_->refuse(whole, cause);
    }
    communicator_->append_to_history(call->first);
    communicator_->append_to_history(call->second);  // its size is not known yet
    if (device != kHostDevice) return allreduce_sparse_cuda(*call, options.asyncOp);
    if (!options.asyncOp) {
      const auto last = submit(communicator_, call, {});
      turn.unlock();  // it has its place
      communicator_->wait(*last, kNoTimeout);
      call->finish(*communicator_);
      if (call->failure) throw *call->failure;
      return finished(c10d::OpType::_ALLREDUCE_SPARSE, whole, {tensors[0]});
    }
    // What torch waits for: finished when the sum is made, which takes a while and so is the
    // callback thread's. Never queued.
    auto summed = std::make_shared<Task>();
    summed->operation = whole;
    auto work = work_of_tasks(c10d::OpType::_ALLREDUCE_SPARSE, whole.sequence, {tensors[0]}, whole.timeout);
    work->add_task(summed, {tensors[0]}, nullptr);
    try {
      submit(communicator_, std::move(call), [group = communicator_, summed](auto exchanged) {
        CallbackThread::instance().push([group, call = std::move(exchanged), summed] {
          call->finish(*group);
          summed->finish(call->failure);
        });
      });
    } catch (...) {
      work->abandon(*summed);
      throw;
    }
    work->seal();
    return work;
  });
}

// The host waits until all ranks have called: it must know how long what comes is. The rest is on
// the caller's stream.
AlBackend::WorkPtr AlBackend::allreduce_sparse_cuda(SparseCall& call, bool async) {
  const auto sequence = call.whole.sequence;
  bool buffers_free = true;
  std::optional<Error> error;
  try {
    communicator_->run(call.first, buffers_free);
  } catch (const Error& thrown) {
    error = thrown;
  }
  call.note(error, buffers_free);
  PreparedCall exchange;
  call.prepare(call.second, exchange.output_counts, *communicator_);
  if (call.failure) {
    // A peer that has not failed goes on to the exchange, so it must be told.
    if (call.known_to_all)
      communicator_->finished(call.second, communicator_->transport(), "skipped", {});
    else
      communicator_->abort_call(call.second, call.failure->without_label());
    throw *call.failure;
  }
  exchange.operation = call.second;
  const at::Tensor tensor = call.sum.tensor();
  const auto buffers = call.sum.buffers();
  exchange.keep = {buffers[1], buffers[2]};
  launch(c10d::OpType::_ALLREDUCE_SPARSE, std::move(exchange), /*async=*/false);
  const c10::DeviceGuard on_device(tensor.device());
  call.finish(*communicator_);
  cuda_group(call.second)->throw_if_failed();  // the sum was made of what had been aborted
  if (call.failure) throw *call.failure;
  if (!async) return finished(c10d::OpType::_ALLREDUCE_SPARSE, call.whole, {tensor});
  auto done = std::make_shared<InFlight>(c10::Event(c10::DeviceType::CUDA));
  done->end.record(cuda_guard().getStream(tensor.device()));
  done->outcome = c10d::WorkResult::SUCCESS;  // the exchange is over
  return c10::make_intrusive<CudaWork>(getRank(), c10d::OpType::_ALLREDUCE_SPARSE, sequence, Tensors{tensor},
                                       cuda_group(call.second), std::move(done), -1, call.whole.timeout);
}

}  // namespace altorch::backend
