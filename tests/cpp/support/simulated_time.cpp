// SPDX-License-Identifier: BSD-3-Clause
#include "support/simulated_time.h"

#include <cxxabi.h>
#include <ucontext.h>

#include <cstring>
#include <queue>

// Sanitizers want to know which stack is in use. GCC's words; what is not sanitized has none of it.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace altorch {
namespace {

constexpr std::size_t kStack = 1 << 18;  // touched where it is used

SimulatedTime* beginning = nullptr;  // hands itself to a new stack

}  // namespace

struct SimulatedTime::Rank {
  // The C++ runtime's state of the exceptions that a thread handles.
  struct Exceptions {
    void* caught = nullptr;
    unsigned int uncaught = 0;
  };

  int number = -1;
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  Exceptions exceptions;
  WaitClock::duration ahead{};  // slept since it was last in time with the others
  std::string error;
  void* fiber = nullptr;  // as ThreadSanitizer knows it

#if defined(__SANITIZE_THREAD__)
  ~Rank() {
    if (fiber && stack) __tsan_destroy_fiber(fiber);
  }
#endif

  // Returns when a rank switches back to this one.
  void go_to(Rank& other) {
    void* own = abi::__cxa_get_globals();
    std::memcpy(&exceptions, own, sizeof exceptions);
    std::memcpy(own, &other.exceptions, sizeof exceptions);
#if defined(__SANITIZE_ADDRESS__)
    void* saved = nullptr;
    __sanitizer_start_switch_fiber(&saved, other.stack.get(), other.stack ? kStack : 0);
    swapcontext(&context, &other.context);
    __sanitizer_finish_switch_fiber(saved, nullptr, nullptr);
#elif defined(__SANITIZE_THREAD__)
    fiber = __tsan_get_current_fiber();
    if (!other.fiber) other.fiber = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(other.fiber, 0);
    swapcontext(&context, &other.context);
#else
    swapcontext(&context, &other.context);
#endif
  }
};

struct SimulatedTime::Queue {
  struct Entry {
    WaitClock::time_point wakes;
    std::uint64_t order;
    Rank* rank;
    bool operator>(const Entry& other) const {
      return wakes != other.wakes ? wakes > other.wakes : order > other.order;
    }
  };
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> entries;
  std::uint64_t pushed = 0;
  void push(WaitClock::time_point wakes, Rank* rank) { entries.push({wakes, pushed++, rank}); }
};

SimulatedTime::SimulatedTime(int ranks)
    : queue_(std::make_unique<Queue>()), caller_(std::make_unique<Rank>()), running_(caller_.get()) {
  for (int number = 0; number < ranks; ++number) {
    auto& rank = *ranks_.emplace_back(std::make_unique<Rank>());
    rank.number = number;
    rank.stack.reset(new char[kStack]);
    getcontext(&rank.context);
    rank.context.uc_stack.ss_sp = rank.stack.get();
    rank.context.uc_stack.ss_size = kStack;
    makecontext(&rank.context, begin, 0);
  }
}

SimulatedTime::~SimulatedTime() = default;

int SimulatedTime::rank() const { return running_->number; }

WaitClock::time_point SimulatedTime::now() { return now_ + running_->ahead; }

void SimulatedTime::sleep_for(WaitClock::duration time) { running_->ahead += time; }

std::vector<std::string> SimulatedTime::run(const std::function<void(int)>& body) {
  body_ = &body;
  beginning = this;
  for (auto& rank : ranks_) queue_->push(now_, rank.get());
  WaitClock::use(this);
  go_on_with_the_next();
  WaitClock::use(nullptr);
  std::vector<std::string> errors;
  for (auto& rank : ranks_) errors.push_back(std::move(rank->error));
  return errors;
}

void SimulatedTime::begin() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  SimulatedTime& time = *beginning;
  Rank& self = *time.running_;
  try {
    (*time.body_)(self.number);
  } catch (const std::exception& error) {
    self.error = error.what();
  }
  time.go_on_with_the_next();
}

void SimulatedTime::meet_the_others() {
  queue_->push(now_ + running_->ahead, running_);
  running_->ahead = {};
  go_on_with_the_next();
}

void SimulatedTime::go_on_with_the_next() {
  Rank* next = caller_.get();
  if (!queue_->entries.empty()) {
    now_ = queue_->entries.top().wakes;
    next = queue_->entries.top().rank;
    queue_->entries.pop();
  }
  Rank& self = *running_;
  running_ = next;
  if (next != &self) self.go_to(*next);
}

}  // namespace altorch
