// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/progress.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "base/adaptive_wait.h"
#include "base/per_process.h"
#include "platform/native_thread.h"
#include "runtime/callback_thread.h"
#include "runtime/communicator.h"

namespace altorch {
namespace {

std::atomic<int> groups{0};  // that live
std::atomic<bool> forked{false};
constexpr std::chrono::milliseconds kShortSleep{1};
constexpr int kShortSleepsBeforeLong = 20;

}  // namespace

// Never destroyed: threads of the interpreter may still submit while the process exits.
ProgressThread& ProgressThread::instance() { return PerProcess<ProgressThread>::get(); }

ProgressThread::Use::Use() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] {
    if (groups.load() > 0) forked.store(true);
  });
  static_cast<void>(watched);
  groups.fetch_add(1);
}

ProgressThread::Use::~Use() { groups.fetch_sub(1); }

int ProgressThread::Use::living() { return groups.load(); }

bool ProgressThread::usable() { return !forked.load(std::memory_order_relaxed); }

ProgressThread::ProgressThread() {
  CallbackThread::instance();  // what finishes an operation pushes to it
  start_native_thread("al-progress", [this] { loop(); });
}

void ProgressThread::watch(std::shared_ptr<Communicator> communicator, bool urgent) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(watched_.begin(), watched_.end(),
                                    [&](const Entry& entry) { return entry.communicator == communicator; });
    if (found != watched_.end()) {
      ++found->calls;
    } else {
      watched_.push_back({std::move(communicator), 0});
    }
    wake = sleeping_ || (sleeps_briefly_ && urgent);
    ++calls_;
    dozing_for_.interrupt();
  }
  if (wake) wake_.notify_one();
}

// Waits for work, and returns what there is: the thread sleeps briefly several times before it
// falls asleep, so that a stream of messages does not wake it for each.
std::vector<ProgressThread::Entry> ProgressThread::next_round(AdaptiveWait& wait) {
  std::unique_lock lock(mutex_);
  sleeps_briefly_ = true;
  if (!watched_.empty() && helpers_.load(std::memory_order_relaxed) > 0) wake_.wait_for(lock, kShortSleep);
  for (int times = 0; watched_.empty() && times < kShortSleepsBeforeLong; ++times) {
    wake_.wait_for(lock, kShortSleep);
    wait.reset();
  }
  sleeps_briefly_ = false;
  if (watched_.empty()) {
    sleeping_ = true;
    wake_.wait(lock, [&] { return !watched_.empty(); });
    sleeping_ = false;
  }
  calls_ = 0;
  return watched_;
}

void ProgressThread::loop() {
  // On a core that computes, this thread waits for its turn instead of interrupting: a caller that
  // waits drives its call itself. On 2 cores a DDP step of 26 million parameters on 2 ranks then
  // switches threads half as often.
  const sched_param any{};
  if (sched_getscheduler(0) == SCHED_OTHER) pthread_setschedparam(pthread_self(), SCHED_BATCH, &any);
  AdaptiveWait wait;
  while (true) {
    std::vector<Entry> round = next_round(wait);
    Driven found;
    for (Entry& looked_at : round) {
      if (looked_at.communicator->drive(found)) continue;
      const std::lock_guard lock(mutex_);
      std::erase_if(watched_, [&](const Entry& entry) {
        return entry.communicator == looked_at.communicator && entry.calls == looked_at.calls;
      });
    }
    if (found.moved) wait.reset();
    wait.pause(found.spin_budget, found.wait_target(),
               [&](auto most) { return sleep_until_raised(found.wait_target(), most); });
    round.clear();  // may end a communicator, outside the lock
  }
}

bool ProgressThread::sleep_until_raised(const WaitTarget& awaited, std::chrono::microseconds most) {
  {
    const std::lock_guard lock(mutex_);
    if (calls_ > 0) return true;
    dozing_for_ = awaited;
  }
  const bool slept = awaited.sleep(most);
  const std::lock_guard lock(mutex_);
  dozing_for_ = {};
  return slept;
}

}  // namespace altorch
