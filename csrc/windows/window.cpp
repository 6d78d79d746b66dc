// SPDX-License-Identifier: BSD-3-Clause
#include "windows/window.h"

#include <algorithm>
#include <thread>

#include "base/fields.h"
#include "base/leak_intentionally.h"
#include "base/log.h"
#include "platform/signal_check.h"
#include "reduction/reduce.h"
#include "rendezvous/store_allgather.h"
#include "rendezvous/store_view.h"
#include "runtime/progress.h"
#include "runtime/watchdog_store.h"
#include "select/decide.h"
#include "select/table.h"
#include "transports/channel_barrier.h"
#include "transports/message_window.h"
#include "windows/handle.h"
#include "windows/row.h"
#include "windows/windows.h"

namespace altorch {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at whether the target lives: accesses, unless one is large.
constexpr std::uint32_t kCallsBetweenLooks = 256;
constexpr std::size_t kLarge = 256 << 10;
constexpr std::chrono::milliseconds kBetweenLooks{5};
constexpr std::chrono::seconds kFarewell{5};  // of rank 0 to the others

// Of all ranks.
Operation operation_on(int window, const char* access, std::chrono::milliseconds timeout) {
  Operation operation;
  operation.kind = OpKind::kOneSided;
  operation.tag = window;
  operation.access = access;
  operation.root = kAnySource;
  operation.timeout = timeout;
  return operation;
}

Error invalid(const std::string& what) { return Error(ErrorKind::kInvalidArgument, what); }

bool is_refusal(const Error& error) {
  const ErrorKind kind = error.kind();
  return kind == ErrorKind::kInvalidArgument || kind == ErrorKind::kInvalidType ||
         kind == ErrorKind::kUnsupported || kind == ErrorKind::kClosed;
}

}  // namespace

Operation one_sided(const Group& group, int window, const Asking& asking, int rank,
                    std::chrono::milliseconds timeout) {
  const bool exists = rank >= 0 && rank < group.size();
  Operation operation = operation_on(window, exists ? asking.to : asking.name, timeout);
  if (exists) operation.root = rank;
  return operation;
}

Window::Window(Communicator& group, int number, std::vector<Registered> registered,
               std::unique_ptr<RemoteMemory> remote, std::shared_ptr<void> keep, OnError on_error)
    : group_(group),
      number_(number),
      registered_(std::move(registered)),
      remote_(std::move(remote)),
      waits_(remote_->streams() ? std::make_unique<StreamWaits>(group, *remote_->streams(), on_error)
                                : nullptr),
      keep_(std::move(keep)),
      taken_(registered_.size() * kSignalSlots) {}

Window::~Window() { release(/*agreed=*/false); }

// If a peer or a device may still touch the memory, it is kept.
void Window::release(bool agreed) {
  if (closed_.exchange(true)) return;
  if (!ProgressThread::usable()) {  // a forked child: the window is its parent's
    leak_intentionally(std::move(remote_));
    leak_intentionally(std::make_unique<std::shared_ptr<void>>(std::move(keep_)));
    return;
  }
  if (waits_) waits_->stop();
  if (!remote_->close(agreed)) leak_intentionally(std::make_unique<std::shared_ptr<void>>(std::move(keep_)));
  keep_.reset();
}

Operation Window::operation_of(const WindowCall& call, bool waits, std::chrono::milliseconds timeout) const {
  Operation operation =
      one_sided(group_, number_, waits ? kWaitForSignal : asking(call.access), call.peer, timeout);
  operation.dtype = call.dtype;
  operation.count = static_cast<std::int64_t>(call.bytes() / size_of(call.dtype));
  return operation;
}

void Window::check_usable(const Operation& operation) const {
  try {
    group_.check_open();
    if (is_closed()) throw Error(ErrorKind::kClosed, "the window is closed; register a tensor with it again");
    if (releasing_.load(std::memory_order_acquire))
      throw Error(ErrorKind::kClosed,
                  "the window is being released; end what other threads ask of it before");
  } catch (const Error& error) {
    throw group_.explain(operation, error);
  }
}

void Window::admit(const Operation& operation, const WindowCall& call) const {
  check_usable(operation);
  try {
    check(call);
  } catch (const Error& error) {
    throw group_.explain(operation, error);
  }
}

void Window::check(const WindowCall& call) const {
  if (call.peer < 0 || call.peer >= group_.size()) throw no_such_rank(call.peer, group_);
  if (call.slot != kNoSlot && (call.slot < 0 || call.slot >= kSignalSlots)) throw no_such_slot(call.slot);
  if (call.access == Access::kSignal) return;
  const Registered& target = registered(call.peer);
  if (target.dtype != call.dtype)
    throw Error(ErrorKind::kInvalidType, std::string("the tensor is of ") + name_of(call.dtype) +
                                             ", and what that rank has registered is of " +
                                             name_of(target.dtype));
  const std::size_t element = size_of(call.dtype);
  if (call.bytes() == 0 && call.offset > target.bytes) {
    throw invalid("element " + std::to_string(call.offset / element) +
                  " does not lie within what that rank has registered, which has " +
                  std::to_string(target.bytes / element) + " elements, nor at its end");
  }
  if (call.bytes() > 0 && (call.offset > target.bytes || call.span() > target.bytes - call.offset)) {
    throw invalid("elements " + std::to_string(call.offset / element) + " to " +
                  std::to_string((call.offset + call.span()) / element - 1) +
                  " do not lie within what that rank has registered, the call exceeds the window size of " +
                  std::to_string(target.bytes / element) + " elements");
  }
  if (call.access == Access::kAccumulate && (is_float8(call.dtype) || !can_reduce(call.dtype, call.op)))
    throw Error(ErrorKind::kInvalidType,
                std::string(name_of(call.op)) + " of " + name_of(call.dtype) + " is not defined in windows");
  const bool counts = call.access == Access::kFetchAdd || call.access == Access::kCompareSwap;
  if (counts && call.dtype != DType::kInt32 && call.dtype != DType::kInt64)
    throw Error(ErrorKind::kInvalidType, std::string(kAccesses[call.access].name) +
                                             " takes int32 and int64, not " + name_of(call.dtype));
}

bool Window::take_signal(int source, int slot) {
  const auto place = static_cast<std::size_t>(source * kSignalSlots + slot);
  const std::lock_guard lock(mutex_);
  if (remote_->signals(source, slot) <= taken_[place]) return false;
  ++taken_[place];
  return true;
}

std::uint64_t Window::awaited_signals(int source, int slot) const {
  const std::lock_guard lock(mutex_);
  return taken_[static_cast<std::size_t>(source * kSignalSlots + slot)] + 1;
}

WaitTarget Window::wait_target(const WindowTask& task) const {
  if (!task.waits) return {};
  return remote_->wait_target(task.call.peer, task.call.slot,
                              awaited_signals(task.call.peer, task.call.slot));
}

std::optional<Error> Window::look_after(const WindowCall& call, bool waits, const Operation& operation,
                                        Wait& wait, Clock::time_point now) const {
  if (is_closed()) return Error(ErrorKind::kClosed, "the window was closed meanwhile");
  // Its last signal may have come just before.
  if (waits && remote_->has_left(call.peer) &&
      remote_->signals(call.peer, call.slot) < awaited_signals(call.peer, call.slot))
    return Error(ErrorKind::kClosed,
                 "rank " + std::to_string(call.peer) + " of the group has closed the window");
  if (waits) return group_.watchdog().look_after(operation, wait, now);
  Operation of_all = operation;
  of_all.root = kAnySource;  // any rank may hold an access up
  return group_.watchdog().look_after(of_all, wait, now);
}

// What was begun and is aborted may yet take effect, unless it only waited: then the group is not
// to go on.
Error Window::failed(const Operation& operation, const Error& noticed, const Wait& wait, bool waited) {
  const bool takes_effect_alone = remote_->is_served() || is_on_streams();
  const bool leaves_nothing = noticed.kind() == ErrorKind::kTimeout && (waited || !takes_effect_alone);
  if (is_refusal(noticed) || leaves_nothing) return group_.failed(operation, noticed);
  return group_.watchdog().fail(operation, noticed, wait);
}

bool Window::abort(WindowCall& call) {
  if (remote_->cancel(call)) return true;
  group_.links().mark_broken();
  return false;
}

// Shared memory outlives the rank that shared it, and accepts writes. So a dead target must be
// looked for.
std::optional<Error> Window::look_for_dead(const WindowCall& call, const Operation& operation) {
  const std::uint32_t number = calls_.fetch_add(1, std::memory_order_relaxed);
  if (number % kCallsBetweenLooks != 0 && call.bytes() < kLarge) return std::nullopt;
  const std::unique_lock lock(looking_, std::try_to_lock);
  if (!lock) return std::nullopt;
  return group_.watchdog().look_for_dead_only(operation, look_, Clock::now());
}

// Whatever is thrown: what was posted before has to be withdrawn.
State Window::begin(WindowCall& call, const Operation& operation, std::optional<Error>& noticed) {
  try {
    noticed = look_for_dead(call, operation);
    return noticed ? State::kFailed : remote_->begin(call, noticed);
  } catch (...) {
    noticed = caught();
    return State::kFailed;
  }
}

State Window::test(WindowCall& call, std::optional<Error>& noticed) {
  try {
    return remote_->test(call, noticed);
  } catch (...) {
    noticed = caught();
    return State::kFailed;
  }
}

State Window::attempt(WindowTask& task, std::optional<Error>& noticed) {
  State state = State::kPending;
  if (task.waits) {
    if (take_signal(task.call.peer, task.call.slot)) state = State::kDone;
  } else if (!std::exchange(task.begun, true)) {
    state = begin(task.call, task.operation, noticed);
  } else {
    state = test(task.call, noticed);
  }
  if (state == State::kDone)
    group_.count(task.operation, remote_->name(),
                 task.waits ? "wait_signal" : kAccesses[task.call.access].name);
  return state;
}

void Window::ended(const WindowTask& task) {
  if (!task.waits) under_way_.fetch_sub(1, std::memory_order_release);
}

// What is thrown here would end the process.
bool Window::serve() {
  if (serves_no_more_) return false;
  try {
    return remote_->serve();
  } catch (...) {
    serves_no_more_ = true;
    const Operation operation = operation_on(number_, "what its peers ask of this rank", {});
    group_.watchdog().fail(operation, caught(), {});
    return false;
  }
}

bool Window::advance(WindowTask& task, Clock::time_point now) {
  std::optional<Error> noticed;
  State state = State::kPending;
  try {
    if (group_.is_closing()) noticed = group_.closed();
    if (!noticed) state = attempt(task, noticed);
    if (state == State::kPending && !noticed) {
      noticed = look_after(task.call, task.waits, task.operation, task.wait, now);
      // A signal comes before what its sender does next: before its leave, too.
      if (noticed && task.waits && take_signal(task.call.peer, task.call.slot)) {
        noticed.reset();
        state = State::kDone;
      }
    }
  } catch (...) {
    noticed = caught();
  }
  if (state == State::kPending && !noticed) return false;
  if (state == State::kDone) {
    task.finish();
    return true;
  }
  const bool buffers_free = abort(task.call);
  const Error told = failed(task.operation, *noticed, task.wait, task.waits);
  if (!task.waits) {
    const std::lock_guard lock(mutex_);
    const auto is_its = [&](const Failure& each) { return each.rank == task.call.peer; };
    if (std::none_of(failures_.begin(), failures_.end(), is_its)) failures_.push_back({task.call.peer, told});
  }
  task.finish(told, buffers_free);
  return true;
}

std::shared_ptr<WindowTask> Window::start(WindowCall call, std::chrono::milliseconds timeout) {
  auto task = std::make_shared<WindowTask>();
  task->operation = operation_of(call, false, timeout);
  admit(task->operation, call);
  task->call = std::move(call);
  task->window = shared_from_this();
  task->wait = group_.watchdog().begin_wait(task->operation);
  const bool must_wait = !remote_->keeps_order() && under_way_.load(std::memory_order_acquire) > 0;
  std::optional<Error> noticed;
  const State state = must_wait ? State::kPending : attempt(*task, noticed);
  if (state == State::kDone) task->finish();
  if (state == State::kFailed) {
    const bool buffers_free = abort(task->call);
    task->finish(failed(task->operation, *noticed, task->wait, false), buffers_free);
  }
  return task;
}

std::shared_ptr<WindowTask> Window::start_wait(int source, int slot, std::chrono::milliseconds timeout) {
  auto task = std::make_shared<WindowTask>();
  task->waits = true;
  task->call.peer = source;
  task->call.slot = slot;
  task->operation = operation_of(task->call, true, timeout);
  admit(task->operation, task->call);
  task->window = shared_from_this();
  task->wait = group_.watchdog().begin_wait(task->operation);
  std::optional<Error> none;
  if (attempt(*task, none) == State::kDone) task->finish();
  return task;
}

void Window::post(std::shared_ptr<WindowTask> task) {
  group_.issue(task->operation);
  if (!task->waits) under_way_.fetch_add(1, std::memory_order_release);
  Windows::of(group_).post(std::move(task));
  ProgressThread::instance().watch(group_.shared_from_this(), true);
}

void Window::access(WindowCall& call, std::chrono::milliseconds timeout, bool& buffers_free) {
  buffers_free = true;
  Operation operation = operation_of(call, false, timeout);
  admit(operation, call);
  std::optional<Error> noticed;
  if (!remote_->keeps_order() && under_way_.load(std::memory_order_acquire) > 0)
    await_posted(call.peer, one_sided(group_, number_, kFlush, call.peer));
  State state = begin(call, operation, noticed);
  Wait wait;
  if (state == State::kPending) {
    group_.issue(operation);
    wait = group_.watchdog().begin_wait(operation);
    AdaptiveWait pauses;
    SignalCheck signals;
    while (state == State::kPending && !noticed) {
      Driven found;
      group_.drive(found);
      if (found.moved) pauses.reset();
      pauses.pause(wait.spin_budget);
      state = test(call, noticed);
      if (state == State::kPending) noticed = look_after(call, false, operation, wait, Clock::now());
      if (state == State::kPending && !noticed) noticed = signals.look();
    }
  }
  if (state == State::kDone) {
    if (call.held_at != kNoSlot) waits_->watch(operation, call);
    return group_.count(operation, remote_->name(), kAccesses[call.access].name);
  }
  buffers_free = abort(call);
  const Error told = failed(operation, *noticed, wait, false);
  // No watch thread looks after what the stream has of this call.
  if (is_on_streams() && group_.is_closing()) remote_->streams()->end();
  throw told;
}

void Window::wait_signal(int source, int slot, std::chrono::milliseconds timeout) {
  WindowCall call;
  call.peer = source;
  call.slot = slot;
  Operation operation = operation_of(call, true, timeout);
  admit(operation, call);
  if (!take_signal(source, slot)) {
    group_.issue(operation);
    Wait wait = group_.watchdog().begin_wait(operation);
    AdaptiveWait pauses;
    SignalCheck signals;
    while (!take_signal(source, slot)) {
      Driven found;
      if (remote_->is_served()) group_.drive(found);
      if (found.moved) pauses.reset();
      pauses.pause(wait.spin_budget, remote_->wait_target(source, slot, awaited_signals(source, slot)));
      auto noticed = look_after(call, true, operation, wait, Clock::now());
      if (!noticed) noticed = signals.look();
      if (noticed) {
        if (take_signal(source, slot)) break;  // as in advance()
        throw failed(operation, *noticed, wait, true);
      }
    }
  }
  group_.count(operation, remote_->name(), "wait_signal");
}

void Window::enqueue_wait(int source, int slot, void* stream, bool captured,
                          std::chrono::milliseconds timeout, const std::function<void()>& entered) {
  WindowCall call;
  call.peer = source;
  call.slot = slot;
  call.stream = stream;
  call.captured = captured;
  Operation operation = operation_of(call, true, timeout);
  admit(operation, call);
  group_.issue(operation);
  try {
    waits_->add(operation, call, entered);
  } catch (const Error& error) {
    throw is_refusal(error) ? group_.explain(operation, error) : group_.watchdog().fail(operation, error, {});
  }
  group_.count(operation, remote_->name(), "wait_signal");
}

void Window::drain(std::chrono::milliseconds timeout) {
  if (!is_on_streams()) return;
  const Operation operation = operation_on(number_, "the end of its calls", timeout);
  Wait wait = group_.watchdog().begin_wait(operation);
  try {
    remote_->streams()->mark(/*waits_too=*/false);
    AdaptiveWait pauses;
    SignalCheck signals;
    while (!remote_->streams()->is_past()) {
      pauses.pause(wait.spin_budget);
      auto noticed = group_.watchdog().look_after(operation, wait, Clock::now());
      if (!noticed) noticed = signals.look();
      if (noticed) throw *noticed;
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInterrupted) throw group_.explain(operation, error);
    throw group_.watchdog().fail(operation, error, wait);
  }
}

// Each of them has its own deadline. Those that other threads go on posting have no end.
void Window::await_posted(int rank, const Operation& operation) {
  if (under_way_.load(std::memory_order_acquire) == 0) return;
  const std::uint64_t posted = Windows::of(group_).posted();
  const bool ends = operation.timeout.count() > 0;
  const Wait wait = group_.watchdog().begin_wait(operation);
  const ProgressThread::Helper helper;
  AdaptiveWait pauses;
  SignalCheck signals;
  while (Windows::of(group_).is_busy(*this, rank, posted)) {
    Driven found;
    group_.drive(found);
    if (found.moved) pauses.reset();
    pauses.pause(found.spin_budget);
    if (const auto signal = signals.look()) throw group_.explain(operation, *signal);
    if (!ends) continue;
    if (const auto noticed = group_.watchdog().overdue(operation, wait, Clock::now())) throw *noticed;
  }
}

std::optional<Error> Window::take_failure(int rank) {
  const std::lock_guard lock(mutex_);
  std::optional<Error> first;
  std::erase_if(failures_, [&](const Failure& each) {
    if (rank != kAnySource && each.rank != rank) return false;
    if (!first) first = each.error;
    return true;
  });
  return first;
}

// Shared memory outlives the rank that shared it, and has accepted what was written to it. A rank
// that seems dead is looked at once more, a little later.
void Window::check_alive(const Operation& operation) {
  Wait wait;
  while (true) {
    std::optional<Error> noticed;
    try {
      noticed = group_.watchdog().look_for_dead_only(operation, wait, Clock::now());
    } catch (...) {
      noticed = caught();
    }
    if (noticed) throw group_.watchdog().fail(operation, *noticed, wait);
    if (wait.suspicions == 0) return;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void Window::flush(int rank) {
  const Operation operation = one_sided(group_, number_, kFlush, rank);
  check_usable(operation);
  await_posted(rank, operation);
  if (const auto failure = take_failure(rank)) throw *failure;
  check_alive(operation);
}

// What has failed here is told at the end: the others wait for this rank, whatever became of its
// accesses.
void Window::fence(std::chrono::milliseconds timeout) {
  const Operation operation = operation_on(number_, "fence", {});
  check_usable(operation);
  try {
    await_posted(kAnySource, operation);
    drain(timeout);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInterrupted) throw;
    // The others would wait for this rank.
    throw group_.watchdog().fail(operation, error.without_label(), {});
  }
  std::optional<Error> failure;
  try {
    meet_others(timeout);
  } catch (const Error& error) {
    failure = error;
  }
  if (const auto earlier = take_failure(kAnySource)) failure = earlier;
  if (failure) throw *failure;
}

// Not the group's barrier: those of two threads, with a window each, would be taken for one
// another.
void Window::meet_others(std::chrono::milliseconds timeout) {
  const std::lock_guard one_by_one(fence_mutex_);
  Operation operation = operation_on(number_, "fence", timeout);
  check_usable(operation);
  Channel& channel = group_.links().channel();
  auto barrier =
      std::make_unique<ChannelBarrier>(channel, first_window_tag(group_, number_) + MessageWindow::kTags);
  Wait wait = group_.watchdog().begin_wait(operation);
  std::optional<Error> noticed;
  const ProgressThread::Helper helper;
  try {
    AdaptiveWait pauses;
    SignalCheck signals;
    bool issued = false;
    while (!noticed) {
      const WaitTarget target = channel.wait_target();
      if (barrier->test(noticed) == State::kDone) return group_.count(operation, remote_->name(), "fence");
      if (!std::exchange(issued, true)) group_.issue(operation);
      Driven found;
      group_.drive(found);
      if (found.moved) pauses.reset();
      pauses.pause(wait.spin_budget, target);
      if (!noticed && is_closed()) noticed = Error(ErrorKind::kClosed, "the window was closed meanwhile");
      if (!noticed) noticed = group_.watchdog().look_after(operation, wait, Clock::now());
      if (!noticed) noticed = signals.look();
    }
  } catch (...) {
    noticed = caught();
  }
  if (noticed->kind() == ErrorKind::kTimeout)
    noticed = Error(ErrorKind::kTimeout,
                    "rank " + std::to_string(barrier->late_peer()) +
                        " of the group has not come to it, or waits there for one that has not; " +
                        noticed->what());
  if (!barrier->cancel()) {
    group_.links().mark_broken();
    leak_intentionally(std::move(barrier));
  }
  throw is_refusal(*noticed) ? group_.failed(operation, *noticed)
                             : group_.watchdog().fail(operation, *noticed, wait);
}

void Window::close(std::chrono::milliseconds timeout) {
  if (is_closed()) return;
  const Operation operation = operation_on(number_, "the end of it on all ranks", timeout);
  std::optional<Error> failure;
  try {
    Group::check_own_process();
  } catch (const Error& error) {
    throw group_.explain(operation, error);
  }
  releasing_.store(true, std::memory_order_release);  // else it had no end while another thread goes on
  try {
    if (!group_.is_closing()) await_posted(kAnySource, operation);
    if (!group_.is_closing()) drain(timeout);
    WatchdogStore store(group_, operation);
    if (!group_.is_closing()) {
      const std::string key = "window/" + std::to_string(number_) + "/closed";
      store_allgather(store, key, group_.rank(), group_.size(), timeout, "to release a window");
      // This may be the last call: the process that hosts the store must not end before its peers
      // have read the result.
      leave_in_turn(store, key + "/left", group_.rank(), group_.size(), kFarewell);
    }
  } catch (const Error& error) {
    failure = is_refusal(error) ? group_.explain(operation, error)
                                : group_.watchdog().fail(operation, error.without_label(), {});
  }
  const auto self = shared_from_this();
  release(/*agreed=*/!failure && !group_.is_closing());
  Windows::of(group_).remove(*this);
  if (failure) throw *failure;
}

std::shared_ptr<Window> open_window(Communicator& group, std::byte* memory, Registered own,
                                    std::shared_ptr<void> keep, std::chrono::milliseconds timeout,
                                    const std::string& unsupported_reason, const WindowGpu* gpu) {
  const int number = Windows::of(group).next_number();
  const Operation operation = operation_on(number, "the making of it on all ranks", timeout);
  try {
    group.check_open();
    WatchdogStore checked(group, operation);
    const std::string prefix = "window/" + std::to_string(number) + "/";
    std::vector<Registered> registered;
    const std::string kind = gpu ? "a GPU" : "the CPU";
    Fields mine = registered_fields(own);
    mine.insert(mine.end(), {unsupported_reason, kind});
    for (const std::string& text : store_allgather(checked, prefix + "registered", group.rank(), group.size(),
                                                   timeout, "to open a window", encode_fields(mine))) {
      const Fields fields = decode_fields(text, 4);
      if (!fields[2].empty())
        throw invalid("rank " + std::to_string(registered.size()) +
                      " of the group has nothing to register: " + fields[2]);
      if (fields[3] != kind)
        throw invalid("the tensor of rank " + std::to_string(registered.size()) + " is on " + fields[3] +
                      ", and that of rank " + std::to_string(group.rank()) + " on " + kind);
      registered.push_back(registered_from(fields[0], fields[1]));
    }
    const Rules rules;
    std::string all;
    std::unique_ptr<RemoteMemory> remote;
    const auto takes = [&](const Route& way) {
      PrefixView store(checked, prefix + std::string(way.name) + "/");
      std::string reason;
      remote = window_row_named(way.name, gpu != nullptr)
                   .open({group, group.links(), store, number, memory, own, timeout, gpu, registered,
                          rules.window() == way.name},
                         reason);
      if (remote) return true;
      const std::string why = std::string(way.name) + ": " + reason;
      all += (all.empty() ? "" : "; ") + why;
      log(LogLevel::kInfo, group.explain(operation, Error(ErrorKind::kUnsupported, "not by " + why)).what());
      return false;
    };
    Operation asked = operation;
    if (gpu) asked.device = gpu->device;
    if (decide({&asked, 1}, World{.ranks = group.size()}, rules, takes)) {
      auto window = make_watched<Window>(group, number, std::move(registered), std::move(remote),
                                         std::move(keep), gpu ? gpu->on_error : OnError::kPoison);
      Windows::of(group).add(window);
      if (window->is_served()) ProgressThread::instance().watch(group.shared_from_this(), true);
      return window;
    }
    for (const Row& row : rows_on(gpu ? On::kGpuWindow : On::kHostWindow)) {
      if (row.limits.only == Only::kNamed && rules.window() != row.carrier)
        all += "; " + std::string(row.carrier) + ": " + calls_of(row);
    }
    throw Error(ErrorKind::kUnsupported, "no way serves: " + all);
  } catch (const Error& error) {
    // What all ranks were told leaves them as they were; else some of them may go on with a window,
    // and some without.
    throw is_refusal(error) ? group.explain(operation, error) : group.watchdog().fail(operation, error, {});
  }
}

}  // namespace altorch
