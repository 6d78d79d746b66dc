// SPDX-License-Identifier: BSD-3-Clause
// How a prepared call is run: on this thread, on the group's progress thread, or on a stream.
#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backend/c10d/backend.h"
#include "backend/cuda/cuda_guard.h"
#include "select/costs.h"

namespace altorch::backend {

// What no route takes was refused; anything else may have begun.
Error AlBackend::not_launched(const Operation& operation, const Error& error) {
  const bool refused = error.kind() == ErrorKind::kInvalidArgument || error.kind() == ErrorKind::kUnsupported;
  return refused ? communicator_->refuse(operation, error) : communicator_->abort_call(operation, error);
}

AlBackend::WorkPtr AlBackend::estimate(c10d::OpType type, const PreparedCall& call) {
  const Operation& operation = call.operation;
  estimate_.add(operation.on_gpu() ? measured_seconds(On::kGpu, operation, getSize())
                                   : communicator_->estimate(operation));
  return c10::make_intrusive<AlWork>(getRank(), type, operation.sequence, call.outputs, /*source=*/-1,
                                     operation.timeout);
}

void AlBackend::refuse_in_estimate(const char* what) const {
  if (estimate_.is_running())
    throw Error(ErrorKind::kUnsupported, std::string("a time estimate takes collectives, not ") + what);
}

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
void AlBackend::startTimeEstimate() {
  guarded([&] { estimate_.start(); });
}
float AlBackend::endTimeEstimate() {
  return guarded([&] { return estimate_.end(); });
}
#endif

AlBackend::WorkPtr AlBackend::launch(c10d::OpType type, PreparedCall call, bool async) {
  if (!call.operation.on_gpu()) return launch_on_host(type, std::move(call));
  const Operation operation = call.operation;
  try {
    const auto group = cuda_group(operation);
    if (const auto window = windows_.joinable(); window && (async || window->own)) {
      const auto key = call.kept_key = CompletionHooks::next_key();
      call.called_on = cuda_guard().getStream(group->device());
      return c10::make_intrusive<KeptWork>(getRank(), type, operation.sequence, operation.timeout, key,
                                           window->keep(std::move(call)));
    }
    const Tensors outputs = async ? Tensors() : call.outputs;
    std::vector<PreparedCall> calls;
    calls.push_back(std::move(call));
    auto work = group->launch(type, std::move(calls), async);
    return work ? work : finished(type, operation, outputs);
  } catch (const Error& error) {
    throw not_launched(operation, error);
  } catch (const c10::Error& error) {  // the peers may have enqueued it
    communicator_->abort_call(operation, Error(ErrorKind::kTransport, error.what_without_backtrace()));
    throw;
  }
}

bool AlBackend::blocks(const PreparedCall& call, bool async) const {
  if (async || call.operation.on_gpu()) return false;
  const auto window = windows_.joinable();
  return !window || !window->own;
}

void AlBackend::load(PreparedCall& call) {
  try {
    for (Block& block : call.loads) block.load();
  } catch (const c10::Error& error) {
    communicator_->abort_call(call.operation, Error(ErrorKind::kTransport, error.what_without_backtrace()));
    throw;
  }
}

AlBackend::WorkPtr AlBackend::run(c10d::OpType type, PreparedCall& call, Communicator::Place& place) {
  bool buffers_free = true;
  try {
    place.run(buffers_free);
  } catch (...) {
    if (!buffers_free) AlWork::leak_intentionally({call.keep.begin(), call.keep.end()});
    throw;
  }
  for (const Block& block : call.stores) block.store();
  return finished(type, call.operation, call.outputs);
}

AlBackend::WorkPtr AlBackend::launch_on_host(c10d::OpType type, PreparedCall call) {
  load(call);
  const std::uint64_t sequence = call.operation.sequence;
  const auto window = windows_.joinable();
  const bool in_own = window && window->own;
  auto task = std::make_shared<Task>();
  task->operation = call.operation;
  task->input_counts = std::move(call.input_counts);
  task->output_counts = std::move(call.output_counts);
  task->operation.input_counts = task->input_counts;
  task->operation.output_counts = task->output_counts;
  // What is stored behind the call may fail, and the Work says so.
  if (!window && call.stores.empty() && communicator_->try_inline(*task)) {
    return done_work(type, task->operation, std::move(call.outputs));
  }
  std::function<void()> finish;
  if (!call.stores.empty()) {
    finish = [stores = std::move(call.stores)] {
      for (const Block& block : stores) block.store();
    };
  }
  if (window) window->work->add_outputs(call.outputs);
  auto work =
      in_own ? window->work : work_of_tasks(type, sequence, std::move(call.outputs), task->operation.timeout);
  work->add_task(task, {call.keep.begin(), call.keep.end()}, std::move(finish));
  if (window && !in_own) window->work->add_task(task, {}, nullptr);
  try {
    communicator_->submit(task);
  } catch (...) {
    work->abandon(*task);
    if (window && !in_own) window->work->abandon(*task);
    throw;
  }
  if (in_own) return nullptr;  // coalesce() gives the Work of all
  work->seal();
  return work;
}

AlBackend::WorkPtr AlBackend::finished(c10d::OpType type, const Operation& operation,
                                       const Tensors& outputs) const {
  // torch keeps what it gets for wait_tensor() then.
  if (c10d::allow_inflight_collective_as_graph_input() || hooks_->completion_hooks()->are_there())
    return done_work(type, operation, outputs);
  const bool is_looked_at = log_ ? log_->hooked() : torch_records();
  return is_looked_at ? finished_ : nullptr;
}

AlBackend::WorkPtr AlBackend::done_work(c10d::OpType type, const Operation& operation, Tensors outputs,
                                        int source) const {
  auto work = c10::make_intrusive<AlWork>(getRank(), type, operation.sequence, std::move(outputs), source,
                                          operation.timeout);
  if (hooks_->completion_hooks()->are_there()) work->tell(*hooks_->completion_hooks());
  return work;
}

c10::intrusive_ptr<AlWork> AlBackend::work_of_tasks(c10d::OpType type, std::uint64_t sequence,
                                                    Tensors outputs,
                                                    std::chrono::milliseconds timeout) const {
  return c10::make_intrusive<AlWork>(getRank(), type, sequence, std::move(outputs), communicator_,
                                     hooks_->completion_hooks(), timeout);
}

}  // namespace altorch::backend
