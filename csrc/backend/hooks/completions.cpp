// SPDX-License-Identifier: BSD-3-Clause
#include "backend/hooks/completions.h"

#include <future>
#include <string>
#include <utility>

#include "base/log.h"
#include "runtime/callback_thread.h"

namespace altorch::backend {
namespace {

constexpr EnumTable<OpKind, c10d::OpType> kTypes({
    {OpKind::kAllReduce, c10d::OpType::ALLREDUCE},
    {OpKind::kReduce, c10d::OpType::REDUCE},
    {OpKind::kBroadcast, c10d::OpType::BROADCAST},
    {OpKind::kAllGather, c10d::OpType::ALLGATHER},
    {OpKind::kReduceScatter, c10d::OpType::REDUCE_SCATTER},
    {OpKind::kAllToAll, c10d::OpType::ALLTOALL},
    {OpKind::kGather, c10d::OpType::GATHER},
    {OpKind::kScatter, c10d::OpType::SCATTER},
    {OpKind::kBarrier, c10d::OpType::BARRIER},
    {OpKind::kSend, c10d::OpType::SEND},
    {OpKind::kReceive, c10d::OpType::RECV},
    {OpKind::kScan, c10d::OpType::UNKNOWN},
    {OpKind::kExscan, c10d::OpType::UNKNOWN},
    {OpKind::kOneSided, c10d::OpType::UNKNOWN},
});

void tell(const Completions::Hook& hook, std::shared_ptr<c10d::WorkInfo> done) noexcept {
  try {
    hook(std::move(done));
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, std::string("a completion hook failed: ") + error.what());
  } catch (...) {
    log(LogLevel::kWarning, "a completion hook failed");
  }
}

}  // namespace

std::shared_ptr<Completions::Hook> Completions::set(Hook hook) {
  auto next = hook ? std::make_shared<Hook>(std::move(hook)) : nullptr;
  const std::lock_guard lock(mutex_);
  hook_.swap(next);
  if (!hook_) under_way_.clear();
  ended_.notify_all();
  return next;
}

void Completions::issued(const ObservedCall& call) {
  const std::lock_guard lock(mutex_);
  if (hook_) under_way_.insert(call.number);
}

// Whether it was issued since the hook is there.
bool Completions::ends(const ObservedCall& call) {
  const bool is_known = under_way_.erase(call.number) > 0;
  if (is_known) ended_.notify_all();
  return is_known;
}

void Completions::finished(const ObservedCall& call, std::chrono::nanoseconds took) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (!hook_ || !ends(call)) return;
  auto done = std::make_shared<c10d::WorkInfo>(kTypes[call.call.kind], call.sequence, now - took, now, took);
  // Pushed under the lock, and so before wait_for_pending() can see that the call has ended.
  CallbackThread::instance().push(
      [hook = hook_, done = std::move(done)]() mutable { tell(*hook, std::move(done)); });
}

void Completions::failed(const ObservedCall& call) {
  const std::lock_guard lock(mutex_);
  ends(call);
}

void Completions::wait_for_pending() {
  {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return under_way_.empty(); });  // each ends by its own deadline
  }
  auto told = std::make_shared<std::promise<void>>();
  auto all = told->get_future();
  CallbackThread::instance().push([told] { told->set_value(); });
  all.wait_for(std::chrono::seconds(60));
}

}  // namespace altorch::backend
