#include "engine/progress.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "common/adaptive_wait.h"
#include "engine/callback_thread.h"
#include "engine/communicator.h"

namespace altorch {
namespace {

std::atomic<bool> forked{false};
constexpr std::chrono::milliseconds kNap{1};
constexpr int kNapsBeforeSleep = 20;

}  // namespace

// Never destroyed: threads of the interpreter may still submit while the process exits.
ProgressThread& ProgressThread::instance() {
  static auto* thread = new ProgressThread();
  return *thread;
}

void ProgressThread::watch_forks() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
  static_cast<void>(watched);
}

bool ProgressThread::usable() { return !forked.load(std::memory_order_relaxed); }

ProgressThread::ProgressThread() {
  CallbackThread::instance();  // before that of the user's callbacks could inherit what follows
  thread_ = std::thread([this] { loop(); });
  pthread_setname_np(thread_.native_handle(), "al-progress");
  // On a core that computes it waits for its turn, instead of interrupting: it is in no hurry, since whoever waits drives
  // himself. Measured on 2 cores, a DDP step of 26 million parameters on 2 ranks: half the switches between threads.
  const sched_param any{};
  if (sched_getscheduler(0) == SCHED_OTHER) pthread_setschedparam(thread_.native_handle(), SCHED_BATCH, &any);
  thread_.detach();
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
    wake = sleeping_ || (napping_ && urgent);
    ++calls_;
    dozing_for_.interrupt();
  }
  if (wake) wake_.notify_one();
}

// Waits for work, and returns what there is: the thread dozes for a while before it falls asleep, so that a
// stream of messages does not wake it for each.
std::vector<ProgressThread::Entry> ProgressThread::next_round(AdaptiveWait& wait) {
  std::unique_lock lock(mutex_);
  napping_ = true;
  if (!watched_.empty() && helpers_.load(std::memory_order_relaxed) > 0) wake_.wait_for(lock, kNap);
  for (int naps = 0; watched_.empty() && naps < kNapsBeforeSleep; ++naps) {
    wake_.wait_for(lock, kNap);
    wait.reset();
  }
  napping_ = false;
  if (watched_.empty()) {
    sleeping_ = true;
    wake_.wait(lock, [&] { return !watched_.empty(); });
    sleeping_ = false;
  }
  calls_ = 0;
  return watched_;
}

void ProgressThread::loop() {
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
    wait.pause(found.patience, found.awaited(), [&](auto most) { return doze(found.awaited(), most); });
    round.clear();  // may end a communicator, outside the lock
  }
}

bool ProgressThread::doze(const Awaited& awaited, std::chrono::microseconds most) {
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
