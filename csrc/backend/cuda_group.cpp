#include "backend/cuda_group.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <thread>
#include <unordered_map>

#include "backend/cuda_watch.h"
#include "backend/cuda_work.h"
#include "common/adaptive_wait.h"
#include "common/log.h"
#include "device/cuda_runtime.h"
#include "engine/callback_thread.h"
#include "engine/fingerprint.h"

namespace altorch::backend {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{10};  // of a group that is destroyed
constexpr std::size_t kMostLaunched = 1024;    // remembered
constexpr std::size_t kMostMarkers = 16;
constexpr std::size_t kMostCompared = 16;  // with what the peers called, while the device is held up

c10::impl::VirtualGuardImpl devices() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA); }

// By a graph that somebody makes: an event recorded now would become a part of it.
bool is_captured(const c10::Stream& stream) {
  return CudaRuntime::instance().is_capturing(stream.native_handle());
}

// torch names a stream that is not its own by its address.
c10::Stream own_stream(CudaDevice* device, c10::Device where, bool high_priority) {
  if (!device) return devices().getStreamFromGlobalPool(where, high_priority);
  const auto address = reinterpret_cast<std::intptr_t>(device->make_stream(high_priority));
  return c10::Stream(c10::Stream::UNSAFE, where, static_cast<c10::StreamId>(address));
}

// Which group was the last to put something on a stream of its caller's, without an event behind it yet.
class LastOnStream {
 public:
  std::shared_ptr<CudaGroup> exchange(const c10::Stream& stream, std::weak_ptr<CudaGroup> group) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<CudaGroup>& entry = groups_[stream.id()];
    const auto before = entry.lock();
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

// Tensors may belong to Python, so they go where its lock may be waited for.
void release_elsewhere(std::shared_ptr<InFlight> done) {
  CallbackThread::instance().push([done = std::move(done)] {});
}

}  // namespace

CudaGroup::CudaGroup(std::shared_ptr<Communicator> communicator, const Operation& first,
                     std::chrono::milliseconds timeout, bool high_priority, OnError on_error,
                     GpuRouteOptions options)
    : communicator_(std::move(communicator)),
      device_(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(first.device)),
      on_error_(on_error),
      routes_(*communicator_, first, timeout, std::move(options)),
      streams_(CudaDevice::obstacle(first.device) ? nullptr : std::make_unique<CudaDevice>(first.device)),
      stream_(own_stream(streams_.get(), device_, high_priority)),
      future_stream_(own_stream(streams_.get(), device_, /*high_priority=*/true)),
      last_(c10::DeviceType::CUDA) {}

// What is in flight is let finish, for a while, and ended then: a route must not go while streams wait in it.
// By another thread, for CUDA may hold up who asks it whether all is done.
CudaGroup::~CudaGroup() {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread ender;
  if (!idle_.load()) {
    ender = std::thread([&] {
      std::unique_lock lock(mutex);
      if (!failure() && !changed.wait_for(lock, kPatience, [&] { return over; })) end_in_flight();
      while (!changed.wait_for(lock, std::chrono::milliseconds(10), [&] { return over; })) {
        if (const auto failed = failure()) {
          routes_.mark_results();
          routes_.abort(failed->what());
        }
      }
    });
    pthread_setname_np(ender.native_handle(), "al-cuda-end");
  }
  const auto began = Clock::now();
  AdaptiveWait wait;
  while (!is_idle() && Clock::now() < began + 2 * kPatience) wait.pause();
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  changed.notify_all();
  if (ender.joinable()) ender.join();
}

void CudaGroup::end_in_flight() {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  const Error cause(ErrorKind::kClosed, "the group was destroyed on rank " +
                                            std::to_string(communicator_->rank()) +
                                            " before this was done, which is ended now");
  failure_ = communicator_->explain(last_operation_, cause);
  log(LogLevel::kWarning, failure_->what());
}

// Recorded when somebody asks only: later work of the stream may be waited for too, and most calls need no
// event.
void CudaGroup::settle() {
  if (settled_ || !last_stream_ || is_captured(*last_stream_)) return;
  settled_ = true;
  const c10::DeviceGuard on_device(device_);
  last_.record(*last_stream_);
}

bool CudaGroup::is_idle() {
  try {
    settle();
    return !last_stream_ || (settled_ && last_.query());
  } catch (const c10::Error&) {
    return true;  // the device is gone, and everything on it
  }
}

// An event that is recorded later would come after what others put on the stream meanwhile: ranks that call
// two groups in different orders would wait for each other.
void CudaGroup::settle_before_another() {
  const std::unique_lock launching(launch_mutex_, std::try_to_lock);
  if (launching) settle();
}

std::optional<Error> CudaGroup::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void CudaGroup::throw_if_failed() const {
  if (const auto error = failure()) throw *error;
}

void CudaGroup::connect(const Operation& usual) {
  const c10::DeviceGuard on_device(device_);
  const std::lock_guard launching(launch_mutex_);
  routes_.choose({&usual, 1}, /*capturing=*/false);
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
  const c10::Stream current = devices().getStream(device_);
  const c10::Stream stream = async ? stream_ : current;
  const bool capturing = is_captured(current);
  std::shared_ptr<InFlight> entry;
  GpuRoute* route = nullptr;
  if (!async && !capturing) {
    const auto before = last_on_stream().exchange(stream, weak_from_this());
    if (before && before.get() != this) before->settle_before_another();
  }
  {
    const std::lock_guard launching(launch_mutex_);
    throw_if_failed();
    communicator_->check_open();
    route = &routes_.choose({operations.data(), operations.size()}, capturing);
    for (PreparedCall& call : calls) {
      for (Block& block : call.loads) block.load();
    }
    if (async) {
      c10::Event begin(c10::DeviceType::CUDA);
      begin.record(current);
      begin.block(stream);
    }
    // One communicator runs one thing at a time. A graph under capture knows no event from outside.
    if (!capturing && last_stream_ && *last_stream_ != stream) {
      settle();
      last_.block(stream);
    }
    for (const Operation& operation : operations) communicator_->record(operation);
    enter(first);
    try {
      routes_.enqueue(*route, {operations.data(), operations.size()}, stream.native_handle());
    } catch (...) {
      withdraw();
      throw_if_failed();  // which says why the route was ended
      throw;
    }
    if (capturing) {
      withdraw();
    } else {
      const std::lock_guard lock(mutex_);
      entering_ = false;
      last_operation_ = first;
      last_stream_ = stream;
      settled_ = false;
    }
    for (const PreparedCall& call : calls) {
      if (call.stores.empty()) continue;
      const c10::StreamGuard on_stream(stream);
      for (const Block& block : call.stores) block.store();
    }
    if (async) {
      entry = std::make_shared<InFlight>(c10::Event(c10::DeviceType::CUDA));
      entry->end.record(stream);
      for (PreparedCall& call : calls)
        entry->tensors.insert(entry->tensors.end(), call.keep.begin(), call.keep.end());
      const std::lock_guard lock(mutex_);
      if (!capturing) in_flight_.push_back(entry);
    }
  }
  for (const PreparedCall& call : calls) {
    communicator_->statistics().add(call.operation.kind, "cuda", route->name(),
                                    payload_bytes(call.operation, communicator_->size()), {});
  }
  if (!async) return nullptr;  // the caller's stream is in order already
  std::vector<at::Tensor> outputs;
  for (PreparedCall& call : calls) outputs.insert(outputs.end(), call.outputs.begin(), call.outputs.end());
  const int source = first.kind == OpKind::kReceive ? first.root : -1;
  return c10::make_intrusive<CudaWork>(communicator_->rank(), type, first.sequence, std::move(outputs),
                                       shared_from_this(), std::move(entry), source);
}

void CudaGroup::enter(const Operation& operation) {
  {
    const std::lock_guard lock(mutex_);
    launched_.push_back({operation, communicator_->begin_vigil()});
    ++calls_;
    if (launched_.size() > kMostLaunched) launched_.pop_front();
    entering_ = true;
    idle_.store(false);
  }
  CudaWatch::instance().wake();
}

void CudaGroup::withdraw() {
  const std::lock_guard lock(mutex_);
  launched_.pop_back();
  --calls_;
  entering_ = false;
}

void CudaGroup::wait_on_host(const c10::Event& event, std::chrono::milliseconds timeout, const char* what) {
  const auto deadline = Clock::now() + timeout;
  AdaptiveWait wait;
  while (!event.query()) {
    throw_if_failed();
    if (Clock::now() > deadline) {
      throw Error(ErrorKind::kTimeout, "altorch: group '" + communicator_->name() + "', rank " +
                                           std::to_string(communicator_->rank()) + ": " + what + " on " +
                                           device_.str() + " gave up after " +
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
  for (const c10::Stream& stream : {devices().getStream(device_), stream_}) {
    c10::Event reached(c10::DeviceType::CUDA);
    reached.record(stream);
    wait_on_host(reached, timeout, "barrier");
  }
}

// A failed route lets its streams go on, so that they being done does not mean that all went well.
std::optional<Error> CudaGroup::route_failure() {
  auto failure = routes_.failure();
  // What the host-staged route reports names group and operation already.
  if (failure && !std::string_view(failure->what()).starts_with("altorch: "))
    failure = communicator_->explain(entering_ ? launched_.back().operation : last_operation_, *failure);
  return failure;
}

// So that the oldest of what is left is, but for a look or two, what the device is at.
void CudaGroup::forget_what_is_done() {
  std::uint64_t reached = 0, calls = 0;
  while (!markers_.empty() && markers_.front().event.query()) {
    reached = markers_.front().calls;
    markers_.pop_front();
  }
  {
    const std::lock_guard lock(mutex_);
    const auto before = launched_.size();
    while (!launched_.empty() && calls_ - launched_.size() < reached) launched_.pop_front();
    if (launched_.empty()) return;
    if (launched_.size() != before) launched_.front().vigil = communicator_->begin_vigil();
    calls = calls_;
  }
  const bool marked = !markers_.empty() && markers_.back().calls == calls;
  if (marked || markers_.size() >= kMostMarkers || !last_stream_ || is_captured(*last_stream_)) return;
  const c10::DeviceGuard on_device(device_);
  markers_.push_back({c10::Event(c10::DeviceType::CUDA), calls});
  markers_.back().event.record(*last_stream_);
}

void CudaGroup::release_what_is_done() {
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
      in_flight_.pop_front();  // nobody else takes from the front
    }
    release_elsewhere(std::move(front));
  }
}

std::optional<Error> CudaGroup::trouble(Clock::time_point now) {
  if (launched_.empty()) return std::nullopt;
  // What holds the host up, or else the device.
  Launched& suspect = entering_ ? launched_.back() : launched_.front();
  const int looks = suspect.vigil.looks;
  if (auto error = communicator_->examine(suspect.operation, suspect.vigil, now))
    return communicator_->explain(suspect.operation, *error);
  const bool looked = suspect.vigil.looks != looks;
  if (!looked || !communicator_->is_time_to_compare(suspect.vigil, now)) return std::nullopt;
  // It may be done, or fine, and the device be held up in one that was launched with it.
  const std::size_t end = std::min(launched_.size(), kMostCompared);
  for (std::size_t i = 0; i < end; ++i) {
    Launched& other = launched_[i];
    if (&other == &suspect || other.operation.is_message()) continue;
    if (auto error = communicator_->compare(other.operation, other.vigil))
      return communicator_->explain(other.operation, *error);
  }
  return std::nullopt;
}

void CudaGroup::fail(const Operation& operation, const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& entry : in_flight_) entry->failed.store(true);
  }
  communicator_->give_up(operation, error);
  log(LogLevel::kError, error.what());
  std::optional<std::string> unmarked;
  if (on_error_ == OnError::kPoison) unmarked = routes_.mark_results();
  if (on_error_ == OnError::kTeardown || unmarked) {
    log(LogLevel::kError,
        "the process ends, so that nobody takes what that operation has left for its result (" +
            unmarked.value_or("ALTORCH_ON_ERROR=teardown") + ")");
    _exit(1);  // nothing that waits for the device could come to its end
  }
  routes_.abort(error.what());
}

bool CudaGroup::poll() {
  try {
    release_what_is_done();
    const std::unique_lock launching(launch_mutex_, std::try_to_lock);
    if (!launching) return true;
    settle();
    forget_what_is_done();
    if (!is_idle()) return true;
    markers_.clear();  // CUDA again, so not with mutex_ held
    const std::lock_guard lock(mutex_);
    if (!in_flight_.empty()) return true;
    launched_.clear();
    idle_.store(true);
    return false;
  } catch (const c10::Error& error) {
    const std::lock_guard lock(mutex_);
    if (!device_failure_) {
      device_failure_ = communicator_->explain(last_operation_,
                                               Error(ErrorKind::kTransport, error.what_without_backtrace()));
    }
    return true;
  }
}

bool CudaGroup::look() {
  std::optional<Error> found = failure();
  if (found) {
    if (idle_.load()) return false;
    routes_.abort(found->what());  // peers' GPUs that went on may have held our streams up once more
    return true;
  }
  Operation suspect;
  {
    const std::lock_guard lock(mutex_);
    if (idle_.load()) return false;
    found = device_failure_ ? device_failure_ : route_failure();
    if (!found) found = trouble(Clock::now());
    if (!found) return true;
    failure_ = found;
    suspect = launched_.empty() ? last_operation_ : launched_.front().operation;
  }
  fail(suspect, *found);
  return true;
}

void CudaGroup::abort(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_)
      failure_ = Error(ErrorKind::kClosed, "altorch: group '" + communicator_->name() + "': " + why);
    for (const auto& entry : in_flight_) entry->failed.store(true);  // CUDA is not asked: it may hold us up
  }
  if (on_error_ != OnError::kContinue) routes_.mark_results();  // asked for, so that nobody need die of it
  routes_.abort(why);
  CudaWatch::instance().wake();
}

}  // namespace altorch::backend
