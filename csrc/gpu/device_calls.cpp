// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/device_calls.h"

#include <unistd.h>

#include <string_view>

#include "base/log.h"
#include "runtime/fingerprint.h"

namespace altorch {
namespace {

constexpr std::size_t kMostCalls = 1024;   // remembered
constexpr std::size_t kMostCompared = 16;  // with what the peers called, while the device is held up

// NCCL's error for a closed connection names no rank.
bool names_no_rank(const Error& error) {
  return std::string_view(error.what()).find("rank ") == std::string_view::npos;
}

}  // namespace

DeviceCalls::DeviceCalls(Group& group, Watchdog& watchdog, DeviceCarrier& carrier, OnError on_error,
                         std::function<void()> tell_waiters)
    : group_(group),
      watchdog_(watchdog),
      carrier_(carrier),
      on_error_(on_error),
      tell_waiters_(std::move(tell_waiters)) {}

void DeviceCalls::enter(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  calls_.push_back({operation, watchdog_.begin_wait(operation)});
  ++number_;
  if (calls_.size() > kMostCalls) calls_.pop_front();
  entering_ = true;
  idle_.store(false);
}

void DeviceCalls::entered() {
  const std::lock_guard lock(mutex_);
  entering_ = false;
  last_ = calls_.back().operation;
}

DeviceCalls::Call DeviceCalls::take_back() {
  Call taken = std::move(calls_.back());
  calls_.pop_back();
  --number_;
  entering_ = false;
  return taken;
}

void DeviceCalls::withdraw() {
  const std::lock_guard lock(mutex_);
  take_back();
}

void DeviceCalls::captured() {
  const std::lock_guard lock(mutex_);
  in_graphs_ = take_back();
}

// So that the oldest of what is left is, but for a look or two, what the device is at.
std::optional<std::uint64_t> DeviceCalls::done_up_to(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto before = calls_.size();
  while (!calls_.empty() && number_ - calls_.size() < number) calls_.pop_front();
  if (calls_.empty()) return std::nullopt;
  Call& oldest = calls_.front();
  if (calls_.size() != before) oldest.wait = watchdog_.begin_again(oldest.operation, oldest.wait);
  return number_;
}

std::uint64_t DeviceCalls::count() const {
  const std::lock_guard lock(mutex_);
  return number_;
}

void DeviceCalls::all_done() {
  const std::lock_guard lock(mutex_);
  calls_.clear();
  idle_.store(true);
}

std::vector<std::uint64_t> DeviceCalls::under_way() const {
  std::vector<std::uint64_t> numbers;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || failure_) return numbers;
  for (const Call& call : calls_) numbers.push_back(call.operation.number);
  return numbers;
}

std::optional<Error> DeviceCalls::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void DeviceCalls::throw_if_failed() const {
  if (const auto error = failure()) throw *error;
}

void DeviceCalls::device_failed(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!device_failure_) device_failure_ = Error(ErrorKind::kTransport, what);
}

DeviceCalls::Call* DeviceCalls::find(std::uint64_t number) {
  const std::uint64_t before = number_ - calls_.size();
  return number > before && number <= number_ ? &calls_[number - before - 1] : nullptr;
}

template <typename Ask>
std::optional<DeviceCalls::Trouble> DeviceCalls::ask_unlocked(Lock& lock, std::uint64_t number,
                                                              const Ask& ask) {
  Call asked = *find(number);
  const auto began = asked.wait.began;
  lock.unlock();
  const std::optional<Error> error = ask(asked.operation, asked.wait);
  lock.lock();
  Call* const left = find(number);
  if (failure_ || !left || left->operation.number != asked.operation.number) return std::nullopt;
  if (left->wait.began == began) left->wait = asked.wait;
  return error ? std::optional(Trouble{asked.operation, *error}) : std::nullopt;
}

// A failed carrier lets its streams go on, so that they being done does not mean that all went
// well.
std::optional<DeviceCalls::Trouble> DeviceCalls::trouble(Lock& lock, Watchdog::Clock::time_point now) {
  if (device_failure_) return Trouble{last_, *device_failure_};
  const Operation& likely = entering_        ? calls_.back().operation
                            : calls_.empty() ? last_
                                             : calls_.front().operation;
  if (const auto failure = carrier_.failure()) return Trouble{likely, *failure};
  if (calls_.empty()) return std::nullopt;
  // Each has its time from when it was called, wherever the device is.
  for (const Call& call : calls_) {
    if (auto error = watchdog_.overdue(call.operation, call.wait, now))
      return Trouble{call.operation, *error};
  }
  // What holds the host up, or else the device.
  const std::uint64_t oldest = number_ - calls_.size() + 1, suspect = entering_ ? number_ : oldest;
  bool compares = false;
  auto found = ask_unlocked(lock, suspect, [&](const Operation& operation, Wait& wait) {
    const int looks = wait.looks;
    auto error = watchdog_.examine(operation, wait, now);
    compares = wait.looks != looks && watchdog_.is_time_to_compare(wait, now);
    return error;
  });
  // It may be done, or fine, and the device be held up in one that was given to it at the same
  // time.
  for (std::uint64_t number = oldest; compares && !found && !failure_ && number < oldest + kMostCompared;
       ++number) {
    const Call* const other = find(number);
    if (!other || number == suspect || other->operation.is_message()) continue;
    found = ask_unlocked(lock, number, [&](const Operation& operation, Wait& wait) {
      return watchdog_.compare(operation, wait);
    });
  }
  return found;
}

bool DeviceCalls::look() {
  if (failure()) {
    if (idle()) return false;
    release();
    return true;
  }
  std::optional<Trouble> found;
  bool replays = false;
  {
    Lock lock(mutex_);
    if (failure_) return !idle();
    replays = idle();
    if (replays && !in_graphs_) return false;
    const auto now = Watchdog::Clock::now();
    found = replays ? trouble_in_graphs(lock, now) : trouble(lock, now);
    if (!found || failure_) return true;
    bool all_told = replays;  // no peer knows what this rank replays
    if (!replays && names_no_rank(found->cause)) {
      lock.unlock();  // so that launches do not wait for the store
      found->cause = watchdog_.with_peers_reason(found->operation, found->cause, all_told);
      lock.lock();
      if (failure_) return true;
    }
    found->cause = watchdog_.with_reported_reason(found->operation, found->cause, all_told);
    failure_ = explained(found->operation, found->cause);
  }
  if (!replays) {
    fail(found->operation, found->cause.without_label());
    return true;
  }
  const std::string why = failure()->what();
  log(LogLevel::kWarning, "graphs that are replayed from now on leave no results: " + why);
  carrier_.end_replays(why);
  return true;
}

// What carried it may know better which message of the call it was, and what another rank has left
// in shared memory names that rank's call.
Error DeviceCalls::explained(const Operation& operation, const Error& cause) const {
  const bool labelled = cause.has_label() || std::string_view(cause.what()).starts_with("altorch: ");
  return labelled ? cause : group_.explain(operation, cause);
}

std::optional<DeviceCalls::Trouble> DeviceCalls::trouble_in_graphs(Lock& lock,
                                                                   Watchdog::Clock::time_point now) {
  Call call = *in_graphs_;
  auto cause = carrier_.failure();
  if (!cause) {
    lock.unlock();
    cause = watchdog_.look_for_dead_only(call.operation, call.wait, now);
    lock.lock();
    if (in_graphs_->operation.number == call.operation.number) in_graphs_->wait = call.wait;
    // A call that was launched meanwhile is no replay: the next look is at that.
    if (failure_ || !idle()) return std::nullopt;
  }
  return cause ? std::optional(Trouble{call.operation, *cause}) : std::nullopt;
}

void DeviceCalls::fail(const Operation& operation, const Error& cause) {
  tell_waiters_();
  group_.abort_call(operation, cause);
  const auto reported = failure();
  log(LogLevel::kError, reported->what());
  std::optional<std::string> unmarked;
  if (on_error_ == OnError::kPoison) unmarked = carrier_.mark_results();
  if (on_error_ == OnError::kTeardown || unmarked) {
    log(LogLevel::kError,
        "the process ends, so that what that operation has left is not taken for its result (" +
            unmarked.value_or("ALTORCH_ON_ERROR=teardown") + ")");
    _exit(1);  // nothing that waits for the device could come to its end
  }
  carrier_.abort(reported->what());
}

void DeviceCalls::end(const Error& cause) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = group_.explain(last_, cause);
  log(LogLevel::kWarning, failure_->what());
}

void DeviceCalls::abort(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = Error(ErrorKind::kClosed, "altorch: group '" + group_.name() + "': " + why);
  }
  tell_waiters_();
  if (on_error_ != OnError::kContinue) carrier_.mark_results();  // a requested abort never ends the process
  carrier_.abort(why);
}

void DeviceCalls::release() {
  const auto failed = failure();
  if (!failed) return;
  if (on_error_ != OnError::kContinue) carrier_.mark_results();
  carrier_.abort(failed->what());
}

}  // namespace altorch
