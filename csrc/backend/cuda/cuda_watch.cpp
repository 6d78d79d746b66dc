// SPDX-License-Identifier: BSD-3-Clause
#include "backend/cuda/cuda_watch.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "device/cuda_runtime.h"
#include "platform/native_thread.h"

namespace altorch::backend {

namespace {

constexpr std::chrono::milliseconds kFirstLook{10}, kLookEvery{100};

std::atomic<bool> exists{false}, stopped{false};

}  // namespace

// Never destroyed: the thread lives as long as the process.
CudaWatch& CudaWatch::instance() {
  static auto* watch = new CudaWatch();
  if (!exists.load(std::memory_order_acquire)) watch->start();
  return *watch;
}

bool CudaWatch::is_there() { return exists.load(); }

// A look may search for a rank that dies (Watchdog::with_peers_reason).
bool CudaWatch::stop() {
  stopped.store(true);
  if (!exists.load()) return true;
  bool idle = true;
  for (Round* round : {&instance().look_, &instance().poll_}) {
    const std::unique_lock lock(round->busy, std::chrono::seconds(3));
    idle &= lock.owns_lock();
  }
  return idle;
}

CudaWatch::CudaWatch() : look_(&Watched::look), poll_(&Watched::poll) {}

// A start that failed is tried again by the next caller.
void CudaWatch::start() {
  const std::lock_guard lock(mutex_);
  for (const auto& [round, name] : {std::pair(&look_, "al-cuda-watch"), std::pair(&poll_, "al-cuda-poll")}) {
    if (round->started) continue;
    start_native_thread(name, [this, round = round] { loop(*round); });
    round->started = true;
  }
  exists.store(true, std::memory_order_release);
}

void CudaWatch::add(const std::shared_ptr<Watched>& group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& entry) { return entry.expired(); });
  groups_.push_back(group);
}

void CudaWatch::wake() {
  if (look_.awake.load(std::memory_order_relaxed) && poll_.awake.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard lock(mutex_);
    look_.awake.store(true);
    poll_.awake.store(true);
  }
  woken_.notify_all();
}

void CudaWatch::loop(Round& round) {
  const CudaRuntime::RelaxedCapture relaxed;
  const BriefOwner brief;  // other groups need this thread while a destructor waits
  bool slept = false;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      slept = !round.awake.load();
      woken_.wait(lock, [&] { return round.awake.load(); });
      round.awake.store(false);  // a launch from here on asks for another round
    }
    // The first call after a while is soon done, and then known to be.
    std::this_thread::sleep_for(std::exchange(slept, false) ? kFirstLook : kLookEvery);
    std::vector<std::weak_ptr<Watched>> groups;
    {
      const std::lock_guard lock(mutex_);
      groups = groups_;
    }
    const std::lock_guard busy(round.busy);
    for (const auto& entry : groups) {
      if (stopped.load()) return;
      // Whatever CUDA throws while the process ends, or once the device is lost, must not end it.
      try {
        const auto group = entry.lock();
        if (group && (group.get()->*round.visit)()) round.awake.store(true);
      } catch (const std::exception& error) {
        log(LogLevel::kError, std::string("looking after a group on a GPU failed: ") + error.what());
      }
    }
  }
}

}  // namespace altorch::backend
