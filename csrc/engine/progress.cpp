#include "engine/progress.h"

#include <pthread.h>

#include <algorithm>

#include "common/adaptive_wait.h"
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
  thread_ = std::thread([this] { loop(); });
  pthread_setname_np(thread_.native_handle(), "al-progress");
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
    round.clear();  // may end a communicator, outside the lock
    if (found.moved) wait.reset();
    wait.pause(found.patience);
  }
}

}  // namespace altorch
