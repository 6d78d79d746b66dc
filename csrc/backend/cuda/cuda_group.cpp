// SPDX-License-Identifier: BSD-3-Clause
#include "backend/cuda/cuda_group.h"

#include <ATen/core/jit_type.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <unordered_map>

#include "backend/c10d/work.h"
#include "backend/cuda/cuda_guard.h"
#include "backend/cuda/cuda_watch.h"
#include "backend/cuda/cuda_work.h"
#include "base/adaptive_wait.h"
#include "base/log.h"
#include "base/longest_timeout.h"
#include "device/cuda_runtime.h"
#include "platform/native_thread.h"
#include "runtime/callback_thread.h"
#include "runtime/fingerprint.h"

namespace altorch::backend {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kEndTimeout{10};  // of a group that is destroyed
constexpr std::size_t kMostMarkers = 16;
constexpr std::chrono::milliseconds kSoon{1};     // poll() mostly records its event in microseconds
constexpr std::chrono::microseconds kApart{500};  // calls of which an event costs nothing that matters

// torch names a stream that is not its own by its address.
c10::Stream own_stream(CudaDevice* device, c10::Device where, bool high_priority) {
  if (!device) return cuda_guard().getStreamFromGlobalPool(where, high_priority);
  const auto address = reinterpret_cast<std::intptr_t>(device->make_stream(high_priority));
  return c10::Stream(c10::Stream::UNSAFE, where, static_cast<c10::StreamId>(address));
}

// Which group was the last to put something on a stream of its caller's, without an event behind it
// yet.
class LastOnStream {
 public:
  std::shared_ptr<CudaGroup> exchange(const c10::Stream& stream, std::weak_ptr<CudaGroup> group) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<CudaGroup>& entry = groups_[stream.id()];
    auto before = entry.lock();
    entry = std::move(group);
    return before;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<c10::StreamId, std::weak_ptr<CudaGroup>> groups_;
};
LastOnStream& last_on_stream() {
  static auto* instance = new LastOnStream();
  return *instance;
}

// Tensors and callbacks may belong to Python, so they go where its lock may be waited for.
void release_elsewhere(std::shared_ptr<InFlight> done, c10d::WorkResult how) {
  CallbackThread::instance().push([done = std::move(done), how] { done->ended(how); });
}

}  // namespace

void InFlight::ended(c10d::WorkResult how) {
  c10::intrusive_ptr<c10::ivalue::Future> waiting;
  std::vector<at::Tensor> released;  // without the lock
  {
    const std::lock_guard lock(mutex);
    released.swap(tensors);
    if (!outcome) waiting = result;  // of a captured call it is complete
    outcome = how;
  }
  if (waiting) waiting->markCompleted(at::IValue(static_cast<std::uint8_t>(how)));
}

c10::intrusive_ptr<c10::ivalue::Future> InFlight::future_result() {
  std::optional<c10d::WorkResult> known;
  {
    const std::lock_guard lock(mutex);
    if (result) return result;
    result = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
    known = outcome;
  }
  if (known) result->markCompleted(at::IValue(static_cast<std::uint8_t>(*known)));
  return result;
}

CudaGroup::CudaGroup(std::shared_ptr<Communicator> communicator, const Operation& first,
                     std::chrono::milliseconds timeout, bool high_priority, OnError on_error,
                     GpuRouteOptions options, std::shared_ptr<const CompletionHooks> hooks)
    : communicator_(std::move(communicator)),
      hooks_(std::move(hooks)),
      device_(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(first.device)),
      routes_(*communicator_, first, timeout, marking(std::move(options))),
      calls_(*communicator_, communicator_->watchdog(), routes_, on_error, [this] { tell_waiters(); }),
      streams_(CudaDevice::unsupported_reason(first.device) ? nullptr
                                                            : std::make_unique<CudaDevice>(first.device)),
      stream_(own_stream(streams_.get(), device_, high_priority)),
      future_stream_(own_stream(streams_.get(), device_, /*high_priority=*/true)),
      last_(c10::DeviceType::CUDA) {}

// A launch that opens a route may hold launch_mutex_ for long, and poll() cannot record an event
// meanwhile. So the earlier calls get their event first.
GpuRouteOptions CudaGroup::marking(GpuRouteOptions options) {
  options.before_opening = [this] {
    if (!calls_.idle()) mark(calls_.count(), /*surely=*/true);
  };
  return options;
}

// What is in flight is let finish, for a while, and ended then: a route must not go while streams
// wait in it. CUDA may hold up the thread that asks it whether all is done, so another thread ends
// what is left. Where no thread can be started, the destructor's own does both in turn.
CudaGroup::~CudaGroup() {
  const CudaRuntime::RelaxedCapture relaxed;  // is_idle() would take a refused question for an answer
  const auto began = Clock::now();
  std::atomic<bool> over{false};
  bool ends = false;  // of the thread that does it
  const auto end_late = [&] {
    if (!failure() && Clock::now() < began + kEndTimeout) return;
    if (!std::exchange(ends, true)) {
      calls_.end(Error(ErrorKind::kClosed, "the group was destroyed on rank " +
                                               std::to_string(communicator_->rank()) +
                                               " before this was done, which is ended now"));
    }
    calls_.release();
  };
  std::optional<NativeThread> ender;
  if (!calls_.idle()) {
    try {
      ender.emplace("al-cuda-end", [&] {
        for (; !over; std::this_thread::sleep_for(std::chrono::milliseconds(10))) end_late();
      });
    } catch (const Error& error) {
      log(LogLevel::kWarning, error.what());
    }
  }
  AdaptiveWait wait;
  while (!is_idle() && Clock::now() < began + 2 * kEndTimeout) {
    if (!ender && !calls_.idle()) end_late();
    wait.pause();
  }
  over = true;
  if (ender) ender->join();
  // No thread watches these calls any more, and callers may wait for their outcomes.
  const bool is_done = is_idle();
  if (!is_done) routes_.leave_to_device();
  const auto keep = [](InFlight& left) {
    const std::lock_guard lock(left.mutex);
    AlWork::leak_intentionally(std::exchange(left.tensors, {}));
  };
  for (std::shared_ptr<InFlight>& left : in_flight_) {
    if (!is_done) keep(*left);  // the device will come to them yet
    const auto how = is_done ? outcome_of(*left) : c10d::WorkResult::COMM_ERROR;
    release_elsewhere(std::move(left), how);
  }
  for (std::shared_ptr<InFlight>& left : in_capture_) {
    if (is_captured(stream_)) keep(*left);
    release_elsewhere(std::move(left), c10d::WorkResult::UNKNOWN);
  }
}

void CudaGroup::keep_until_done(std::shared_ptr<InFlight> entry, const c10::Stream& stream) noexcept {
  entry->failed.store(true);
  try {
    entry->end.record(stream);
    follow(stream);
    const std::lock_guard lock(mutex_);
    in_flight_.push_back(entry);
  } catch (const std::exception&) {  // the device is lost
    const std::lock_guard lock(entry->mutex);
    AlWork::leak_intentionally(std::exchange(entry->tensors, {}));
  }
}

// Recorded only when it is needed, as most calls need no event. A thread that waits for it may then
// also wait for later work of the stream.
void CudaGroup::settle() {
  if (settled_ || !last_stream_ || is_captured(*last_stream_)) return;
  const c10::DeviceGuard on_device(device_);
  settled_ = record_last(last_);
}

// False where another thread has begun to capture the stream meanwhile: such an event is the
// graph's, and cannot be asked.
bool CudaGroup::record_last(c10::Event& event) {
  event.record(*last_stream_);
  if (!is_captured(*last_stream_)) return true;
  event = c10::Event(c10::DeviceType::CUDA);
  return false;
}

// A stream that its owner may destroy once the call has returned is not touched afterwards: the
// group's own stream comes behind it instead.
void CudaGroup::follow(const c10::Stream& stream) {
  last_stream_ = stream;
  settled_ = false;
  if (is_of_torch(stream) || stream == stream_) return;
  settle();
  if (!settled_ || is_captured(stream_)) return;  // a graph takes nothing from outside
  last_.block(stream_);
  last_stream_ = stream_;
}

bool CudaGroup::is_idle() {
  try {
    settle();
    return !last_stream_ || (settled_ && last_.query());
  } catch (const c10::Error&) {
    return true;  // the device is gone, and everything on it
  }
}

// An event that is recorded later would come after what others put on the stream meanwhile: ranks
// that call two groups in different orders would wait for each other.
void CudaGroup::settle_before_another() {
  const std::unique_lock launching(launch_mutex_, kSoon);
  if (launching) settle();
}

void CudaGroup::connect(const Operation& usual) {
  const c10::DeviceGuard on_device(device_);
  const std::lock_guard launching(launch_mutex_);
  routes_.choose({&usual, 1}, /*capturing=*/false);
}

bool CudaGroup::can_carry(const Operation& operation) {
  const c10::DeviceGuard on_device(device_);
  const bool capturing = is_captured(cuda_guard().getStream(device_));
  const std::lock_guard launching(launch_mutex_);
  return routes_.can_carry(operation, capturing);
}

c10::intrusive_ptr<c10d::Work> CudaGroup::launch(c10d::OpType type, std::vector<PreparedCall> calls,
                                                 bool async) {
  c10::SmallVector<Operation, 4> operations;
  for (PreparedCall& call : calls) {
    call.bind();
    operations.push_back(call.operation);
  }
  const Operation first = remembered(operations.front());
  const c10::DeviceGuard on_device(device_);
  const c10::Stream current = cuda_guard().getStream(device_);
  const c10::Stream stream = async ? stream_ : current;
  c10::SmallVector<c10::Stream, 2> behind;  // what the calls come after
  for (const PreparedCall& call : calls) {
    const c10::Stream at_call = call.called_on.value_or(current);
    if (std::find(behind.begin(), behind.end(), at_call) == behind.end()) behind.push_back(at_call);
  }
  const bool capturing = is_captured(behind.front());
  for (std::size_t i = 1; i < behind.size(); ++i) {
    if (is_captured(behind[i]) != capturing) {
      throw Error(
          ErrorKind::kInvalidArgument,
          "a coalescing window has calls on streams that a CUDA graph captures, and on others; capture all "
          "of them, or none");
    }
  }
  const auto what_is_kept = [&] {
    auto kept = std::make_shared<InFlight>(c10::Event(c10::DeviceType::CUDA));
    kept->captured = capturing;
    if (behind.size() == 1) kept->called_on = behind.front();
    for (const PreparedCall& call : calls) {
      kept->tensors.insert(kept->tensors.end(), call.keep.begin(), call.keep.end());
      if (call.kept_key != 0) kept->kept_keys.push_back(call.kept_key);
    }
    return kept;
  };
  std::shared_ptr<InFlight> entry;
  GpuRoute* route = nullptr;
  if (!async && !capturing) {
    const BriefOwner brief;
    const auto before = last_on_stream().exchange(stream, weak_from_this());
    if (before && before.get() != this) before->settle_before_another();
  }
  {
    const std::lock_guard launching(launch_mutex_);
    refuse_if_failed();
    communicator_->check_open();
    // Before a route is opened, which may hold launch_mutex_ for long: settle_before_another() does
    // not wait for that.
    if (!capturing && last_stream_ && *last_stream_ != stream) settle();
    route = &routes_.choose({operations.data(), operations.size()}, capturing);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (!calls[i].loads.empty()) {
        const c10::StreamGuard as_at_call(calls[i].called_on.value_or(current));
        for (Block& block : calls[i].loads) block.load();
      }
      if (calls[i].norm && !route->does_norm_of(operations[i])) calls[i].norm->begin_apart(operations[i]);
    }
    for (const c10::Stream& before : behind) {
      if (before == stream) continue;
      c10::Event begin(c10::DeviceType::CUDA);
      begin.record(before);
      begin.block(stream);
    }
    // One communicator runs one thing at a time. A graph under capture knows no event from outside.
    if (!capturing && last_stream_ && *last_stream_ != stream) {
      settle();  // where another thread's capture of that stream has ended meanwhile
      last_.block(stream);
    }
    // In a graph of several streams, too.
    if (capturing && captured_on_ && *captured_on_ != stream && is_captured(*captured_on_)) {
      c10::Event before(c10::DeviceType::CUDA);
      before.record(*captured_on_);
      before.block(stream);
    }
    for (const Operation& operation : operations) communicator_->started(operation);
    if (!capturing) mark_what_came_before();
    calls_.enter(first);
    CudaWatch::instance().wake();
    if (async) entry = what_is_kept();  // before anything that may throw once the device has the call
    bool entered = false;
    try {
      routes_.enqueue(*route, {operations.data(), operations.size()}, stream.native_handle());
      entered = true;
      if (capturing) {
        calls_.captured();
        captured_on_ = stream;
      } else {
        calls_.entered();
      }
      for (const PreparedCall& call : calls) {
        const bool is_apart = call.norm && call.norm->is_apart();
        if (call.stores.empty() && !is_apart) continue;
        const c10::StreamGuard on_stream(stream);
        for (const Block& block : call.stores) block.store();
        if (is_apart) call.norm->end_apart();
      }
      if (async) entry->end.record(stream);
      if (!capturing) follow(stream);
    } catch (...) {
      if (!entered) calls_.withdraw();
      if (!entry) entry = what_is_kept();
      if (capturing) {
        const std::lock_guard lock(mutex_);
        in_capture_.push_back(std::move(entry));
      } else {
        keep_until_done(std::move(entry), stream);
      }
      throw_if_failed();  // which says why the route was ended
      throw;
    }
    if (async) {
      const std::lock_guard lock(mutex_);
      (capturing ? in_capture_ : in_flight_).push_back(entry);
      if (capturing) entry->outcome = c10d::WorkResult::UNKNOWN;  // the graph has it
    }
    // A failure is noted before tell_waiters() looks at what is in flight: one of the two sees the
    // other.
    if (async && failure()) entry->failed.store(true);
  }
  if (!capturing && waited_elsewhere_.exchange(false, std::memory_order_relaxed)) release_soon();
  for (const PreparedCall& call : calls) communicator_->finished(call.operation, "cuda", route->name(), {});
  if (!async) return nullptr;  // the caller's stream is in order already
  std::vector<at::Tensor> outputs;
  for (PreparedCall& call : calls) outputs.insert(outputs.end(), call.outputs.begin(), call.outputs.end());
  const int source = first.kind == OpKind::kReceive ? first.root : -1;
  return c10::make_intrusive<CudaWork>(communicator_->rank(), type, first.sequence, std::move(outputs),
                                       shared_from_this(), std::move(entry), source, first.timeout);
}

// An earlier synchronous call has returned before it failed, so only a later call can report its
// error.
void CudaGroup::refuse_if_failed() const {
  if (const auto error = failure())
    throw Error(error->kind(),
                std::string("the group is closed since an earlier call failed: ") + error->what());
}

void CudaGroup::wait_on_host(const c10::Event& event, std::chrono::milliseconds timeout, const char* what) {
  const auto deadline = Clock::now() + clamp_timeout(timeout);
  AdaptiveWait wait;
  while (!event.query()) {
    throw_if_failed();
    if (Clock::now() > deadline) {
      throw Error(ErrorKind::kTimeout, "altorch: group '" + communicator_->name() + "', rank " +
                                           std::to_string(communicator_->rank()) + ": " + what + " on " +
                                           device_.str() + " timed out after " +
                                           std::to_string(timeout.count()) +
                                           " ms; the operation itself goes on until its own deadline");
    }
    wait.pause();
  }
  throw_if_failed();
  if (auto failure = routes_.failure()) throw *failure;
}

void CudaGroup::drain(std::chrono::milliseconds timeout) {
  const c10::DeviceGuard on_device(device_);
  for (const c10::Stream& stream : {cuda_guard().getStream(device_), stream_}) {
    c10::Event reached(c10::DeviceType::CUDA);
    reached.record(stream);
    wait_on_host(reached, timeout, "barrier");
  }
}

void CudaGroup::suspend(const Operation& call) {
  const c10::DeviceGuard on_device(device_);
  const std::lock_guard launching(launch_mutex_);
  throw_if_failed();
  const bool capturing =
      is_captured(cuda_guard().getStream(device_)) || (last_stream_ && is_captured(*last_stream_));
  if (!capturing && last_stream_) {
    settle();
    wait_on_host(last_, call.timeout, "suspend");
    calls_.all_done();  // so that none of them is called late while the others are awaited
  }
  routes_.suspend(call, capturing ? "a CUDA graph is being captured" : "");
}

void CudaGroup::resume(const Operation& call) {
  const c10::DeviceGuard on_device(device_);
  const std::lock_guard launching(launch_mutex_);
  throw_if_failed();
  routes_.resume(call);
}

// A Future that is asked for after that of a later call gets a stream for itself.
void CudaGroup::complete_future(const InFlight& call,
                                const std::function<void(const c10::Stream&)>& complete) {
  const auto complete_on = [&](const c10::Stream& stream) {
    call.end.block(stream);
    complete(stream);
  };
  const c10::DeviceGuard on_device(device_);  // CudaDevice leaves its own device current
  const std::lock_guard lock(future_mutex_);
  if (!call.captured && call.key < last_future_key_) {
    const auto device = streams_ ? std::make_unique<CudaDevice>(device_.index()) : nullptr;
    return complete_on(own_stream(device.get(), device_, /*high_priority=*/true));
  }
  if (!call.captured) last_future_key_ = call.key;
  complete_on(future_stream_);
}

// CUDA is not asked with the lock held, for it may hold us up.
std::optional<std::uint64_t> CudaGroup::forget_what_is_done() {
  std::uint64_t reached = 0;
  while (true) {
    std::shared_ptr<const Marker> front;
    {
      const std::lock_guard lock(mutex_);
      if (!markers_.empty()) front = markers_.front();
    }
    if (!front || !front->event.query()) return calls_.done_up_to(reached);
    reached = front->calls;
    const std::lock_guard lock(mutex_);
    markers_.pop_front();  // no other thread takes from the front
  }
}

void CudaGroup::mark_what_came_before() {
  const auto now = Clock::now();
  if (now - std::exchange(last_launch_, now) > kApart && !calls_.idle()) mark(calls_.count());
}

void CudaGroup::mark(std::uint64_t calls, bool surely) {
  if (!last_stream_ || is_captured(*last_stream_)) return;
  {
    const std::lock_guard lock(mutex_);
    const bool marked = !markers_.empty() && markers_.back()->calls == calls;
    if (marked || (markers_.size() >= kMostMarkers && !surely)) return;
  }
  const c10::DeviceGuard on_device(device_);
  auto marker = std::make_shared<Marker>(c10::Event(c10::DeviceType::CUDA), calls);
  if (!record_last(marker->event)) return;
  std::shared_ptr<Marker> replaced;  // ended without the lock
  const std::lock_guard lock(mutex_);
  if (markers_.size() >= kMostMarkers) {
    replaced =
        std::move(markers_.back());  // poll() may be about to take this marker away, if it is the first one
    markers_.back() = std::move(marker);
    return;
  }
  markers_.push_back(std::move(marker));
}

void CudaGroup::release_what_is_done() {
  const std::unique_lock only(release_mutex_, std::try_to_lock);
  if (!only) return;  // another thread does
  while (true) {
    std::shared_ptr<InFlight> front;
    {
      const std::lock_guard lock(mutex_);
      if (in_flight_.empty()) return;
      front = in_flight_.front();
    }
    if (!front->end.query()) return;
    {
      const std::lock_guard lock(mutex_);
      in_flight_.pop_front();  // which no other thread has taken
    }
    const auto how = outcome_of(*front);
    if (how == c10d::WorkResult::SUCCESS && hooks_->are_there()) {
      hooks_->tell(front->key, std::nullopt);
      for (const std::uint64_t key : front->kept_keys) hooks_->tell(key, std::nullopt);
    }
    release_elsewhere(std::move(front), how);
  }
}

// FSDP2 waits on another stream than that of its calls, so the group keeps their tensors until the
// device is done. The next launch releases them, because the next poll may be 100 ms away. The poll
// does it where completion hooks are told, which may call into the group.
void CudaGroup::release_soon() noexcept {
  if (hooks_->are_there()) return;
  try {
    const CudaRuntime::RelaxedCapture relaxed;  // another thread may capture a graph
    release_what_is_done();
  } catch (const std::exception&) {  // poll() says that the device is lost
  }
}

// Calls of the graph are on stream_, which is captured as long as they are. CUDA is not asked with
// the lock held.
void CudaGroup::release_what_was_captured() {
  std::deque<std::shared_ptr<InFlight>> done;
  {
    const std::lock_guard lock(mutex_);
    if (in_capture_.empty()) return;
    done = in_capture_;
  }
  if (is_captured(stream_)) return;
  {
    const std::lock_guard lock(mutex_);
    in_capture_.erase(in_capture_.begin(), in_capture_.begin() + static_cast<std::ptrdiff_t>(done.size()));
  }
  for (std::shared_ptr<InFlight>& entry : done)
    release_elsewhere(std::move(entry), c10d::WorkResult::UNKNOWN);
}

// The device is done with it, since the group failed, too.
c10d::WorkResult CudaGroup::outcome_of(const InFlight& done) const {
  const auto error = failure();
  if (!error && !done.failed.load()) return c10d::WorkResult::SUCCESS;
  return error && error->kind() == ErrorKind::kTimeout ? c10d::WorkResult::TIMEOUT
                                                       : c10d::WorkResult::COMM_ERROR;
}

// CUDA is not asked: it may hold us up.
void CudaGroup::tell_waiters() {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : in_flight_) entry->failed.store(true);
}

bool CudaGroup::poll() {
  try {
    release_what_is_done();
    release_what_was_captured();
    const auto calls = forget_what_is_done();
    const std::unique_lock launching(launch_mutex_, std::try_to_lock);
    if (!launching) return true;
    settle();
    if (calls) mark(calls_.count());
    if (!is_idle()) return true;
    std::deque<std::shared_ptr<Marker>> markers;  // ended without the lock
    bool captures = false;
    {
      const std::lock_guard lock(mutex_);
      markers_.swap(markers);
      if (!in_flight_.empty()) return true;
      captures = !in_capture_.empty();
    }
    calls_.all_done();
    return captures;
  } catch (const c10::Error& error) {
    calls_.device_failed(error.what_without_backtrace());
    return true;
  }
}

void CudaGroup::abort(const std::string& why) {
  calls_.abort(why);
  CudaWatch::instance().wake();
}

}  // namespace altorch::backend
