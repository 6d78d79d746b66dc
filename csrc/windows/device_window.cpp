// SPDX-License-Identifier: BSD-3-Clause
#include "windows/device_window.h"

#include <algorithm>
#include <thread>

#include "base/leak_intentionally.h"
#include "reduction/reduce.h"
#include "windows/device_jobs.h"

namespace altorch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLine = 64;  // signals of two ranks lie in different cache lines
constexpr std::size_t kByCopyEngine = 256 << 10, kByOneBlock = 16 << 10;
constexpr std::chrono::seconds kLastCalls{2};
constexpr std::chrono::milliseconds kLateAnswers{200};

}  // namespace

// What the device tells the host; zero at first.
struct DeviceWindow::ToldHost {
  struct Number {
    std::int64_t found;
    std::uint32_t answered, unused;
  };
  Flag marks[kMostStreams + 1];
  Number answers[kAnswers];
  std::uint32_t aborted;  // by the host to the device
};

// The number that a call waits for. Its place is used again only when the device has written there.
struct DeviceWindow::Answer : WindowCall::State {
  std::shared_ptr<Memory> memory;
  std::size_t number = 0;
};

std::size_t DeviceWindow::signal_bytes(int ranks) { return static_cast<std::size_t>(ranks) * kLine; }
std::size_t DeviceWindow::board_bytes(int ranks) {
  const auto all = static_cast<std::size_t>(ranks);
  return all * sizeof(Flag) * (1 + all * kSignalSlots);
}
std::size_t DeviceWindow::count_bytes(int ranks) {
  return (kCounts * place(ranks, 0) + 2) * sizeof(WindowCount) + sizeof(StagedAccess::Spot);
}
std::size_t DeviceWindow::told_bytes(int ranks) {
  return sizeof(ToldHost) + kTolds * place(ranks, 0) * sizeof(std::uint32_t);
}

DeviceWindow::DeviceWindow(Memory memory, int rank, const Registered& own, OnError on_error, bool co_resident,
                           std::vector<std::string> no_atomics)
    : memory_(std::make_shared<Memory>(std::move(memory))),
      rank_(rank),
      ranks_(static_cast<int>(memory_->of.size())),
      own_(own),
      own_stream_(memory_->device->make_stream()),
      marks_(on_error == OnError::kPoison),
      co_resident_(co_resident),
      no_atomics_(std::move(no_atomics)),
      used_{{own_stream_, true}},
      enqueued_(std::make_unique<std::atomic<std::uint32_t>[]>(place(ranks_, 0))) {
  for (std::size_t each = 0; each + 1 < kAnswers; ++each)
    free_answers_.push_back(each);  // the last is close()'s
  memory_->device->prepare_windows();
  if (marks_) memory_->device->prepare_poison();
  const bool can_add = can_reduce(own.dtype, ReduceOp::kSum) && own.dtype != DType::kComplex128;
  if (can_add) memory_->device->prepare(own.dtype, ReduceOp::kSum, Device::kUpdate);
  if (!memory_->staged) return;
  try {
    staged_.emplace(*memory_->device, *memory_->serving, staged_board(), rank_, ranks_, map(rank_), own_,
                    *reinterpret_cast<StagedAccess::Spot*>(count(kCounts, 2)), aborted());
  } catch (...) {  // its kernels may yet come
    leak_intentionally(std::make_unique<std::shared_ptr<Memory>>(memory_));
    throw;
  }
  used_.push_back({staged_->serving(), true});
}

WindowCount* DeviceWindow::count(Count what, std::size_t place) const {
  return reinterpret_cast<WindowCount*>(memory_->counts.get()) + what * DeviceWindow::place(ranks_, 0) +
         place;
}
std::uint32_t* DeviceWindow::ended() const { return &count(kCounts, 0)->number; }
std::uint32_t* DeviceWindow::aborted() const {
  return &reinterpret_cast<ToldHost*>(memory_->told.get())->aborted;
}
StagedBoard DeviceWindow::staged_board() const {
  return {memory_->staged, ranks_, memory_->is_relayed ? rank_ : StagedBoard::kShared};
}
bool DeviceWindow::is_aborted() const { return std::atomic_ref(*aborted()).load() != 0; }
Flag& DeviceWindow::mark_of(std::size_t stream) const {
  return reinterpret_cast<ToldHost*>(memory_->told.get())->marks[stream];
}
std::uint32_t* DeviceWindow::told(Told what, std::size_t place) const {
  return reinterpret_cast<std::uint32_t*>(memory_->told.get() + sizeof(ToldHost)) +
         what * DeviceWindow::place(ranks_, 0) + place;
}
std::uint32_t DeviceWindow::load(Told what, std::size_t place) const {
  return std::atomic_ref(*told(what, place)).load(std::memory_order_acquire);
}
Flag& DeviceWindow::left(int rank) const { return reinterpret_cast<Flag*>(memory_->board.get())[rank]; }
Flag& DeviceWindow::board_signal(int target, int source, int slot) const {
  const std::size_t before = static_cast<std::size_t>(target) * place(ranks_, 0) + place(source, slot);
  return reinterpret_cast<Flag*>(memory_->board.get())[static_cast<std::size_t>(ranks_) + before];
}
std::uint32_t* DeviceWindow::signal_to(int target, int source, int slot) const {
  if (!co_resident_) return &board_signal(target, source, slot).count;
  std::byte* const line =
      memory_->signals[static_cast<std::size_t>(target)].get() + static_cast<std::size_t>(source) * kLine;
  return reinterpret_cast<std::uint32_t*>(line) + slot;
}

bool DeviceWindow::has_left(int rank) const { return left(rank).reached(1); }

State DeviceWindow::begin(WindowCall& call, std::optional<Error>& error) {
  if (has_left(call.peer)) {
    error = window_closed_by(call.peer);
    return State::kFailed;
  }
  const std::lock_guard lock(mutex_);
  return enqueue(call);
}

State DeviceWindow::enqueue(WindowCall& call) {
  if (is_atomic(call.access) && !no_atomics_[static_cast<std::size_t>(call.peer)].empty())
    throw Error(ErrorKind::kUnsupported, no_atomics_[static_cast<std::size_t>(call.peer)]);
  remember(call, /*waits=*/false);
  if (staged_ && call.peer != rank_) return pass(call);
  if (call.access == Access::kFetchAdd || call.access == Access::kCompareSwap) return ask(call);
  if (call.access == Access::kAccumulate) {
    enqueue_update(*memory_->device, call, map(call.peer), ended());
    if (call.slot != kNoSlot) signal(call);
  } else {
    move(call);
  }
  return State::kDone;
}

// By the peer's own device.
State DeviceWindow::pass(WindowCall& call) {
  if (call.access != Access::kSignal && call.bytes() > 0) {
    const State state = call.state ? staged_->test(call) : staged_->begin(call);
    if (state != State::kDone) return state;
    if (marks_ && call.access == Access::kGet)
      memory_->device->poison(
          {call.into, static_cast<std::int64_t>(call.bytes()), poison_of(call.dtype), aborted()},
          call.stream);
  }
  if (call.slot != kNoSlot) signal(call);
  return State::kDone;
}

void DeviceWindow::remember(const WindowCall& call, bool waits) {
  captured_ |= call.captured;
  if (call.captured) return;
  const auto found =
      std::find_if(used_.begin(), used_.end(), [&](const Used& used) { return used.stream == call.stream; });
  if (found != used_.end()) {
    found->accesses |= !waits;
    return;
  }
  if (used_.size() == kMostStreams) {
    const std::ptrdiff_t oldest = staged_ ? 2 : 1;
    memory_->device->wait_for_stream(own_stream_, used_[static_cast<std::size_t>(oldest)].stream);
    used_.erase(used_.begin() + oldest);
  }
  used_.push_back({call.stream, !waits});
}

void DeviceWindow::add_signal(const WindowCall& call, WindowMove& move) const {
  move.raised = signal_to(call.peer, rank_, call.slot);
  const bool counts_itself = co_resident_ && no_atomics_[static_cast<std::size_t>(call.peer)].empty();
  move.count = counts_itself ? nullptr : count(kSent, place(call.peer, call.slot));
}

// A stream that no longer waits for an answer has not done what the signal would tell of.
void DeviceWindow::signal(const WindowCall& call) {
  WindowMove only = only_raise(nullptr, nullptr, staged_ ? aborted() : ended());
  add_signal(call, only);
  memory_->device->move_window(only, call.stream);
}

// What graphs replay once the window is closed must look whether it is, which no copy engine does.
void DeviceWindow::move(const WindowCall& call) {
  const bool signals = call.slot != kNoSlot, moves = call.access != Access::kSignal && call.bytes() > 0;
  Device& device = *memory_->device;
  if (moves && call.rows == 1 && call.bytes() >= kByCopyEngine && !call.captured) {
    const WindowMove job = move_of(call, map(call.peer), nullptr);
    device.copy_on_device(job.to, job.from, call.bytes(), call.stream);
  } else if (moves) {
    WindowMove job = move_of(call, map(call.peer), ended());
    const bool at_once = signals && call.bytes() <= kByOneBlock;
    if (at_once) add_signal(call, job);
    device.move_window(job, call.stream);
    if (at_once) return;
  }
  if (signals) signal(call);
}

State DeviceWindow::ask(WindowCall& call) {
  if (call.captured)
    throw Error(ErrorKind::kUnsupported,
                std::string(kAccesses[call.access].name) +
                    " gives its number to the host, and cannot go into a CUDA graph");
  if (free_answers_.empty())
    throw Error(ErrorKind::kUnsupported, "too many counts of this window have been aborted");
  auto answer = std::make_unique<Answer>();
  answer->memory = memory_;
  answer->number = free_answers_.back();
  ToldHost::Number& told = reinterpret_cast<ToldHost*>(memory_->told.get())->answers[answer->number];
  std::atomic_ref(told.answered).store(0, std::memory_order_relaxed);
  enqueue_count(*memory_->device, call, map(call.peer), &told.found, &told.answered, ended());
  free_answers_.pop_back();
  call.state = std::move(answer);
  return State::kPending;
}

State DeviceWindow::test(WindowCall& call, std::optional<Error>& error) {
  if (staged_ && call.peer != rank_) {
    const bool left = has_left(call.peer);
    const std::lock_guard lock(mutex_);
    const State state = pass(call);
    if (state != State::kPending || !left) return state;
    error = window_left_by(call.peer);
    return State::kFailed;
  }
  const std::size_t number = static_cast<const Answer&>(*call.state).number;
  ToldHost::Number& told = reinterpret_cast<ToldHost*>(memory_->told.get())->answers[number];
  if (std::atomic_ref(told.answered).load(std::memory_order_acquire) == 0) return State::kPending;
  call.found = told.found;
  const std::lock_guard lock(mutex_);
  free_answers_.push_back(number);
  return State::kDone;
}

void DeviceWindow::wait(const WindowCall& call) {
  const std::lock_guard lock(mutex_);
  if (call.captured && !co_resident_)
    throw Error(ErrorKind::kUnsupported, staged_ ? "a wait for a signal cannot go into a CUDA graph here: "
                                                   "this window goes through the host's memory"
                                                 : "a wait for a signal cannot go into a CUDA graph here: "
                                                   "ranks share one GPU without MPS, so that "
                                                   "no kernel may wait for another one's");
  remember(call, /*waits=*/true);
  Device& device = *memory_->device;
  const std::size_t at = place(call.peer, call.slot);
  if (co_resident_) {
    WindowWait job;
    job.raised = signal_to(rank_, call.peer, call.slot);
    job.taken = count(kTaken, at);
    if (call.captured) {  // the host does not know of each that it may be there
      job.begun = count(kReplayBegun, at);
      job.tells_begun = told(kToldReplayBegun, at);
    }
    job.done = count(call.captured ? kReplayOver : kOver, at);
    job.tells_done = told(call.captured ? kToldReplayOver : kToldOver, at);
    job.aborted = aborted();
    job.data = map(rank_);
    job.bytes = marks_ ? static_cast<std::int64_t>(own_.bytes) : 0;
    job.pattern = poison_of(own_.dtype);
    return device.await_window(job, call.stream);
  }
  const std::uint32_t number = enqueued_[at].fetch_add(1) + 1;
  Flag& flag = board_signal(rank_, call.peer, call.slot);
  device.wait_for_flag(flag, number, call.stream);
  end_wait(call);
  if (is_aborted()) flag.raise(number);  // end() may have come in between
}

void DeviceWindow::end_wait(const WindowCall& call) {
  const std::size_t at = place(call.peer, call.slot);
  if (marks_ && own_.bytes > 0)
    memory_->device->poison(
        {map(rank_), static_cast<std::int64_t>(own_.bytes), poison_of(own_.dtype), aborted()}, call.stream);
  memory_->device->move_window(only_raise(told(kToldOver, at), count(kOver, at), ended()), call.stream);
}

std::uint32_t DeviceWindow::over(int source, int slot) const {
  if (slot >= kSignalSlots) return staged_->passed(source, slot - kSignalSlots);
  return load(kToldOver, place(source, slot));
}

std::uint32_t DeviceWindow::begun(int source, int slot) const {
  return staged_->asked(source, slot - kSignalSlots);
}

StreamOrdered::Replayed DeviceWindow::replayed(int source, int slot) const {
  const std::size_t at = place(source, slot);
  const std::uint32_t over = load(kToldReplayOver, at);  // first, so that it is never the larger
  return {load(kToldReplayBegun, at), over};
}

void DeviceWindow::end() {
  std::atomic_ref(*aborted()).store(1);
  if (co_resident_) return;
  for (int source = 0; source < ranks_; ++source) {
    for (int slot = 0; slot < kSignalSlots; ++slot)
      board_signal(rank_, source, slot).raise(enqueued_[place(source, slot)].load());
  }
  if (staged_) staged_->end();
}

void DeviceWindow::mark(bool waits_too) {
  const std::lock_guard lock(mutex_);
  ++marks_made_;
  std::uint64_t marked = 0;
  for (std::size_t each = 0; each < used_.size(); ++each) {
    if (!used_[each].accesses && !waits_too) continue;
    if (is_serving(each)) {
      staged_->mark(count(kCounts, 1), &mark_of(each).count);
      ++marks_served_;
    } else {
      memory_->device->raise(mark_of(each), marks_made_, used_[each].stream);
    }
    marked |= std::uint64_t{1} << each;
  }
  marked_ = marked;
}

bool DeviceWindow::is_past() const {
  const std::uint64_t marked = marked_;
  for (std::size_t each = 0; each <= kMostStreams; ++each) {
    const std::uint32_t last = is_serving(each) ? marks_served_ : marks_made_;
    if ((marked >> each & 1) != 0 && !mark_of(each).reached(last)) return false;
  }
  return true;
}

// The peers' memory stays mapped if a call may still be in flight, or if a graph may be replayed:
// its kernels then see that the window has ended. If the group just ends, this rank does not know
// how far the streams are. Peers write to this rank's own memory through their own mappings, and
// freeing that memory waits for this rank's streams. But in a staged window this rank's own device
// writes there for the peers, and may still do so.
bool DeviceWindow::close(bool agreed) {
  left(rank_).raise(1);
  end();
  bool past = !agreed && !staged_;
  try {
    ToldHost::Number& one = reinterpret_cast<ToldHost*>(memory_->told.get())->answers[kAnswers - 1];
    if (captured_) {
      one.found = 1;
      memory_->device->copy_to_device(ended(), &one.found, sizeof(std::uint32_t), own_stream_);
    }
    if (agreed) mark(/*waits_too=*/true);
    const auto until = Clock::now() + kLastCalls;
    while (agreed && !(past = is_past()) && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  } catch (const Error&) {  // the device is gone, or the process ends
  }
  const auto late = Clock::now() + kLateAnswers;
  const auto is_answered = [&] {
    const std::lock_guard lock(mutex_);
    return !staged_ || staged_->is_idle();
  };
  while (!past && !is_answered() && Clock::now() < late) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    end();
  }
  if (captured_ || !past || !agreed) leak_intentionally(std::make_unique<std::shared_ptr<Memory>>(memory_));
  return past;
}

}  // namespace altorch
