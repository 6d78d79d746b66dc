// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/work.h"

#include <ATen/core/jit_type.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backend/c10d/errors.h"
#include "backend/hooks/torch_hooks.h"
#include "base/adaptive_wait.h"
#include "base/leak_intentionally.h"
#include "base/longest_timeout.h"
#include "platform/signal_check.h"
#include "runtime/callback_thread.h"

namespace altorch::backend {
namespace {

// What is thrown on the thread that ended a task would end the process.
std::optional<Error> failure_of(const std::function<void()>& finish) {
  std::string cause = "an exception of an unknown type";
  try {
    finish();
    return std::nullopt;
  } catch (const c10::Error& error) {
    cause = error.what_without_backtrace();
  } catch (const std::exception& error) {
    cause = error.what();
  } catch (...) {
  }
  return Error(ErrorKind::kInternal,
               "altorch: the operation is done, but its result could not be copied to the output: " + cause);
}

// The Work that this thread posts or waits for. The caller holds that Work and its tensors
// meanwhile.
thread_local const AlWork* attended = nullptr;

}  // namespace

AlWork::Attended::Attended(AlWork& work) : work_(work), before_(attended) { attended = &work; }
AlWork::Attended::~Attended() {
  attended = before_;
  work_.release_parts();
}

void forget_in_registry(c10d::Work& work) {
  if (!c10d::allow_inflight_collective_as_graph_input()) return;
  c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::reclaim_copy(&work));
}

AlWork::AlWork(int rank, c10d::OpType type, std::uint64_t sequence, std::vector<at::Tensor> outputs,
               int source, std::chrono::milliseconds timeout)
    : Work(rank, type),
      sequence_(sequence),
      source_(source),
      outputs_(std::move(outputs)),
      timeout_(timeout),
      done_(true),
      ended_(began_) {}

AlWork::AlWork(int rank, c10d::OpType type, std::uint64_t sequence, std::vector<at::Tensor> outputs,
               std::shared_ptr<Communicator> communicator, std::shared_ptr<const CompletionHooks> hooks,
               std::chrono::milliseconds timeout)
    : Work(rank, type),
      sequence_(sequence),
      outputs_(std::move(outputs)),
      communicator_(std::move(communicator)),
      hooks_(std::move(hooks)),
      timeout_(timeout),
      pending_(1) {}  // one for seal()

void AlWork::add_task(const std::shared_ptr<Task>& task, std::vector<at::Tensor> keep,
                      std::function<void()> finish) {
  pending_.fetch_add(1);
  {
    const std::lock_guard lock(guard_);
    parts_.push_back({task, std::move(keep)});
  }
  auto self = c10::intrusive_ptr<AlWork>::reclaim_copy(this);
  task->on_done = [self = std::move(self), finish = std::move(finish),
                   earlier = std::move(task->on_done)](Task& done) mutable {
    if (earlier) earlier(done);
    if (!done.error && finish) done.error = failure_of(finish);
    finish = nullptr;
    AlWork* work = self.get();
    work->part_done(done);
    if (attended == work) return;  // no last reference goes here, and that thread releases the tensors itself
    // References may go here, and with them tensors that want Python's lock: not on the progress
    // thread.
    CallbackThread::instance().push([self = std::move(self)] { self->release_parts(); });
  };
}

void AlWork::part_done(const Task& task) {
  {
    const std::lock_guard lock(guard_);
    if (task.error) {
      if (!failure_) failure_ = as_torch(*task.error);
      timed_out_ |= task.error->kind() == ErrorKind::kTimeout;
    }
    for (Part& part : parts_) {
      if (part.task.get() != &task) continue;
      part.done = true;
      if (!task.buffers_free) leak_intentionally(part.keep);
    }
  }
  if (pending_.fetch_sub(1) == 1) complete();
}

void AlWork::release_parts() {
  std::vector<std::vector<at::Tensor>> released;  // outlives the lock: freeing may want Python's
  const std::lock_guard lock(guard_);
  for (Part& part : parts_) {
    if (part.done) released.push_back(std::move(part.keep));
  }
}

void AlWork::add_outputs(const std::vector<at::Tensor>& outputs) {
  outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
}

void AlWork::abandon(Task& task) {
  task.on_done = nullptr;
  pending_.fetch_sub(1);
  const std::lock_guard lock(guard_);
  std::erase_if(parts_, [&](const Part& part) { return part.task.get() == &task; });
}

void AlWork::leak_intentionally(std::vector<at::Tensor> tensors) {
  altorch::leak_intentionally(std::make_unique<std::vector<at::Tensor>>(std::move(tensors)));
}

void AlWork::seal() {
  if (pending_.fetch_sub(1) == 1) complete();
}

void AlWork::complete() {
  bool futures = false, is_well = false;
  {
    const std::lock_guard lock(guard_);
    ended_ = std::chrono::steady_clock::now();
    done_.store(true, std::memory_order_release);
    futures = future_ || result_future_;
    is_well = !failure_;
  }
  if (is_well && hooks_ && hooks_->are_there()) tell(*hooks_);
  if (!futures) return;
  auto self = c10::intrusive_ptr<AlWork>::reclaim_copy(this);
  CallbackThread::instance().push([self = std::move(self)] { self->mark_futures(); });
}

void AlWork::mark_futures() {
  c10::intrusive_ptr<c10::ivalue::Future> future, result;
  std::exception_ptr failure;
  {
    const std::lock_guard lock(guard_);
    if (!future_marked_) future = future_;
    if (!result_future_marked_) result = result_future_;
    future_marked_ |= static_cast<bool>(future);
    result_future_marked_ |= static_cast<bool>(result);
    failure = failure_;
  }
  if (future) {
    if (failure) {
      future->setError(failure);
    } else {
      future->markCompleted(at::IValue(outputs_));
    }
  }
  if (result) {
    const auto outcome = !failure     ? c10d::WorkResult::SUCCESS
                         : timed_out_ ? c10d::WorkResult::TIMEOUT
                                      : c10d::WorkResult::COMM_ERROR;
    result->markCompleted(at::IValue(static_cast<std::uint8_t>(outcome)));
  }
}

bool AlWork::isCompleted() {
  if (done_.load(std::memory_order_acquire)) return true;
  if (communicator_) {
    Driven found;
    communicator_->drive(found);
  }
  return done_.load(std::memory_order_acquire);
}

bool AlWork::isSuccess() const {
  const std::lock_guard lock(guard_);
  return done_.load(std::memory_order_acquire) && !failure_;
}

std::exception_ptr AlWork::exception() const {
  const std::lock_guard lock(guard_);
  return failure_;
}

int AlWork::sourceRank() const { return parts_.empty() ? source_ : parts_.front().task->source; }

std::vector<at::Tensor> AlWork::result() { return outputs_; }

void AlWork::synchronize() { wait(kNoTimeout); }

void AlWork::abort() {
  if (communicator_ && !done_.load()) communicator_->close("a Work of the group was aborted", /*tell=*/true);
}

bool AlWork::wait(std::chrono::milliseconds timeout) {
  if (TorchHooks::runs_here() && !done_.load()) {
    C10_THROW_ERROR(DistBackendError,
                    "altorch: an abort hook cannot wait for a call: it may be the one that failed");
  }
  if (SignalCheck::is_in_handler() && !done_.load()) guarded([] { SignalCheck::refuse_in_handler(); });
  const Attended here(*this);
  timeout = clamp_timeout(timeout);
  for (const Part& part : parts_) {
    if (!guarded([&] { return communicator_->wait(*part.task, timeout); })) {
      const Error late(ErrorKind::kTimeout, "wait(timeout=" + std::to_string(timeout.count()) +
                                                " ms) timed out; the operation itself goes on until its own "
                                                "deadline, and can be waited for again");
      C10_THROW_ERROR(DistBackendError, communicator_->explain(part.task->operation, late).what());
    }
  }
  forget_in_registry(*this);
  if (parts_.empty()) return true;
  if (const auto failure = exception()) std::rethrow_exception(failure);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> AlWork::getFuture() {
  bool ready = false;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(guard_);
    if (!future_) {
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    }
    future = future_;
    ready = done_.load(std::memory_order_acquire);
  }
  if (ready) mark_futures();
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> AlWork::getFutureResult() {
  bool ready = false;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(guard_);
    if (!result_future_) result_future_ = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
    future = result_future_;
    ready = done_.load(std::memory_order_acquire);
  }
  if (ready) mark_futures();
  return future;
}

std::uint64_t AlWork::getSequencenumber() const { return sequence_; }

std::uint64_t AlWork::getCompletionKey() const {
  std::uint64_t key = key_.load();
  if (key != 0) return key;
  const auto fresh = CompletionHooks::next_key();
  return key_.compare_exchange_strong(key, fresh) ? fresh : key;
}

float AlWork::getDuration() const {
  TORCH_CHECK(done_.load(std::memory_order_acquire), "altorch: getDuration() needs a completed operation");
  return std::chrono::duration<float, std::milli>(ended_ - began_).count();
}

}  // namespace altorch::backend
