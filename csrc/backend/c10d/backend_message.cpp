// SPDX-License-Identifier: BSD-3-Clause
// Messages between two ranks, and the barriers.
#include "backend/c10d/issue.h"

namespace altorch::backend {

std::shared_ptr<Task> AlBackend::post(Operation operation, std::int64_t tag) {
  auto task = std::make_shared<Task>();
  operation.tag = tag;
  task->operation = operation;
  return task;
}

AlBackend::WorkPtr AlBackend::message(c10d::OpType type, OpKind kind, const at::Tensor& tensor, int peer,
                                      std::int64_t tag, const char* access) {
  ProfilerRange range(options_->served_name,
                      peer == kAnySource && options_->serves_a_name() ? "recvAnySource" : name_of(kind));
  const bool sends = kind == OpKind::kSend;
  Operation operation;
  operation.kind = kind;
  operation.root = peer;
  const bool is_own = *access != '\0';
  if (is_own) tag = communicator_->tags().own_message();  // out of reach of users' tags
  operation.tag = tag;
  operation.access = access;
  operation.timeout = options_->timeout;
  Block block(tensor);
  try {
    refuse_in_estimate("messages");
    if (peer != kAnySource) check_rank(peer, sends ? "dst" : "src");
    if (!is_own && (tag < 0 || tag > communicator_->tags().max_message())) {
      throw Error(ErrorKind::kInvalidArgument,
                  "the tag must lie between 0 and " + std::to_string(communicator_->tags().max_message()));
    }
    operation.dtype = dtype_of(tensor);
    if (!sends) block.check_storable();
  } catch (const Error& cause) {
    throw communicator_->refuse(operation, cause);
  }
  operation.input = sends ? block.data() : nullptr;
  operation.output = sends ? nullptr : block.data();
  operation.count = block.numel();
  range.describe(operation, *communicator_, tensor);
  if (tensor.is_cuda()) {
    PreparedCall call;
    call.operation = operation;
    call.operation.device = cuda_device_of(tensor);
    call.operation.sequence = communicator_->sequence(call.operation.device);
    call.touch(tensor, block.tensor());
    if (sends && block.staged()) call.loads = {block};
    if (!sends && block.staged()) call.stores = {block};
    if (!sends) call.outputs.push_back(tensor);
    communicator_->issue(call.operation);
    return launch(type, std::move(call), /*async=*/true);
  }
  if (sends) block.load();

  const auto window = windows_.joinable();
  Tensors outputs;
  if (!sends) outputs.push_back(tensor);
  auto task = post(operation, tag);
  // Begun before there is a Work: the peer waits for it.
  if (!window && (sends || !block.staged()) && communicator_->attempt_message(*task)) {
    return done_work(type, task->operation, std::move(outputs), task->source);
  }
  if (window) window->work->add_outputs(outputs);
  auto work = work_of_tasks(type, communicator_->sequence(), std::move(outputs), task->operation.timeout);
  std::function<void()> finish;
  if (!sends && block.staged()) finish = [block] { block.store(); };
  work->add_task(task, {tensor, block.tensor()}, std::move(finish));
  if (window) window->work->add_task(task, {}, nullptr);
  const AlWork::Attended here(*work);
  try {
    communicator_->post(task);
  } catch (...) {
    work->abandon(*task);
    if (window) window->work->abandon(*task);
    throw;
  }
  work->seal();
  return work;
}

AlBackend::WorkPtr AlBackend::send(Tensors& tensors, int destination, int tag) {
  return called([&] {
    return message(c10d::OpType::SEND, OpKind::kSend, only_tensor(tensors, "send's tensor"), destination,
                   tag);
  });
}

AlBackend::WorkPtr AlBackend::recv(Tensors& tensors, int source, int tag) {
  return called([&] {
    return message(c10d::OpType::RECV, OpKind::kReceive, only_tensor(tensors, "recv's tensor"), source, tag);
  });
}

AlBackend::WorkPtr AlBackend::recvAnysource(Tensors& tensors, int tag) {
  return called([&] {
    return message(c10d::OpType::RECVANYSOURCE, OpKind::kReceive, only_tensor(tensors, "recv's tensor"),
                   kAnySource, tag);
  });
}

AlBackend::WorkPtr AlBackend::barrier(const c10d::BarrierOptions& options) {
  // Blocks the host, so that what the ranks gave to their GPUs before is done when they meet.
  guarded([&] {
    for (const auto& group : cuda_groups()) {
      try {
        group->drain(deadline(options.timeout));
      } catch (const Error& error) {
        Operation next;  // the barrier, which has no number yet
        next.sequence = communicator_->sequence() + 1;
        throw communicator_->abort_call(next, error);
      }
    }
  });
  // As in torch, a barrier with device_ids, or in a group with a device_id, also has a place among
  // the CUDA collectives.
  const auto bound = getBoundDeviceId();
  const bool is_on_gpu = !options.device_ids.empty() || (bound && bound->is_cuda());
  return issue(c10d::OpType::BARRIER, OpKind::kBarrier, is_on_gpu ? 0 : kHostDevice, options.timeout,
               options.asyncOp, [](PreparedCall&) {});
}

// Rank 0 waits for a message of every peer, and then answers all of them. Unlike a barrier, it can
// name the ranks that have not come.
void AlBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  guarded([&] {
    SignalCheck::refuse_in_handler();
    refuse_in_estimate("monitored_barrier");
    const std::int64_t tag = communicator_->tags().own_message();  // out of reach of users' tags
    const auto timeout = clamp_timeout(options.timeout.count() >= 0 ? options.timeout : options_->timeout);
    const std::string self = "Rank " + std::to_string(getRank());
    Operation whole;
    whole.sequence = communicator_->sequence();
    const auto failure = [&](ErrorKind kind, const std::string& what) {
      return communicator_->explain(whole, Error(kind, what));
    };
    if (getRank() == 0 && timeout.count() == 0) {
      throw failure(ErrorKind::kTimeout,
                    self + " timed out in monitoredBarrier: its timeout is 0; give it some time");
    }
    const auto exchange = [&](OpKind kind, int peer) {
      Operation operation;
      operation.kind = kind;
      operation.root = peer;
      operation.access = "monitored_barrier";  // no user knows the tag
      operation.timeout = timeout;
      auto task = post(operation, tag);
      communicator_->post(task);
      return task;
    };
    const auto finish = [&](const std::shared_ptr<Task>& task) {
      communicator_->wait(*task, std::chrono::milliseconds(0));
      if (task->error) throw *task->error;
    };
    if (getRank() != 0) {
      try {
        finish(exchange(OpKind::kSend, 0));
        finish(exchange(OpKind::kReceive, 0));
      } catch (const Error& cause) {
        throw failure(cause.kind(),
                      self +
                          " successfully reached monitoredBarrier, but received errors while waiting "
                          "for send/recv from rank 0, whose error names the missing rank: " +
                          cause.what());
      }
      return;
    }
    std::vector<std::shared_ptr<Task>> arrivals;
    for (int peer = 1; peer < getSize(); ++peer) arrivals.push_back(exchange(OpKind::kReceive, peer));
    std::string missing;
    int count = 0;
    for (int peer = 1; peer < getSize(); ++peer) {
      try {
        finish(arrivals[static_cast<std::size_t>(peer - 1)]);
      } catch (const Error&) {
        if (count == 0 || wait_all_ranks) missing += (count ? ", " : "") + std::to_string(peer);
        ++count;
      }
    }
    if (count > 0) {
      throw failure(ErrorKind::kTimeout,
                    "[Rank 0]: " + std::string(wait_all_ranks && count > 1 ? "Ranks " : "Rank ") + missing +
                        " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) +
                        " ms; look what they do, or raise the timeout");
    }
    for (int peer = 1; peer < getSize(); ++peer) finish(exchange(OpKind::kSend, peer));
  });
}

}  // namespace altorch::backend
