// SPDX-License-Identifier: BSD-3-Clause
// One-sided access to tensors of other ranks.
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include <map>
#include <mutex>

#include "backend/c10d/backend.h"
#include "backend/c10d/errors.h"
#include "backend/c10d/one_sided.h"
#include "backend/c10d/without_python.h"
#include "backend/cuda/cuda_guard.h"
#include "backend/cuda/cuda_watch.h"
#include "device/cuda_device.h"
#include "explain/explain.h"
#include "platform/shareable.h"
#include "platform/signal_check.h"
#include "reduction/exact_mode.h"

namespace altorch::backend {
namespace {

Error invalid(const std::string& what) { return Error(ErrorKind::kInvalidArgument, what); }

// The bytes that others may touch, as they are, whatever becomes of the tensor: it may be given
// others (`data`, set_()), but these are neither freed nor moved.
class Kept {
 public:
  explicit Kept(c10::Storage storage) : storage_(std::move(storage)) {
    const std::lock_guard lock(registry().mutex);
    Holders& held = registry().holders[impl()];
    if (held.count++ == 0) held.was_resizable = storage_.resizable();
    impl()->set_resizable(false);
  }
  // The last of the windows over it lets it go.
  ~Kept() {
    const std::lock_guard lock(registry().mutex);
    const auto held = registry().holders.find(impl());
    if (--held->second.count > 0) return;
    impl()->set_resizable(held->second.was_resizable);
    registry().holders.erase(held);
  }
  Kept(const Kept&) = delete;

 private:
  struct Holders {
    int count = 0;
    bool was_resizable = false;
  };
  struct Registry {
    std::mutex mutex;
    std::map<c10::StorageImpl*, Holders> holders;
  };
  c10::StorageImpl* impl() const { return storage_.unsafeGetStorageImpl(); }
  // Windows may end as late as the process.
  static Registry& registry() {
    static auto* const registry = new Registry;
    return *registry;
  }

  const c10::Storage storage_;
};

constexpr Asking kMap{"mapping of the tensor of", "map_remote_tensor"};

// Some negative numbers mean something inside.
int check_slot(int slot) {
  if (slot < 0) throw no_such_slot(slot);
  return slot;
}

// Why it cannot be registered, as a clause; empty: it can.
std::string unsupported_reason_of(const at::Tensor& tensor) {
  try {
    check_tensor(tensor, "the window's tensor");
    dtype_of(tensor);
  } catch (const Error& error) {
    return error.what();
  }
  return is_plain(tensor) && tensor.is_contiguous() ? "" : "its tensor is not contiguous";
}

constexpr std::uint64_t kFar = std::uint64_t{1} << 62;

// So many elements in one block.
WindowCall describe_elements(Access access, DType dtype, std::int64_t count, const AlWindow::Place& place) {
  if (place.offset < 0)
    throw invalid("the offset is " + std::to_string(place.offset) + ", and may not be negative");
  const std::size_t element = size_of(dtype);
  WindowCall call;
  call.access = access;
  call.peer = static_cast<int>(place.rank);  // there is such a rank
  call.dtype = dtype;
  call.offset = static_cast<std::size_t>(place.offset) < kFar / element
                    ? static_cast<std::size_t>(place.offset) * element
                    : kFar;
  call.row_bytes = static_cast<std::size_t>(count) * element;
  call.stride = call.row_bytes;
  return call;
}

// What is asked of CUDA makes the window's device the current one: until this goes.
c10::OptionalDeviceGuard on_device_of(const std::shared_ptr<WindowStreams>& streams) {
  return streams ? c10::OptionalDeviceGuard(streams->device()) : c10::OptionalDeviceGuard();
}

// Makes a tensor of a row of elements. The device is named, because torch would otherwise ask CUDA
// which GPU owns the memory, and a peer's memory belongs to another GPU.
at::Tensor row_at(std::byte* memory, std::int64_t count, const at::TensorOptions& options,
                  std::function<void(void*)> release) {
  return at::for_blob(memory, {count})
      .deleter(std::move(release))
      .options(options)
      .target_device(options.device())
      .make_tensor();
}

// What this rank's kernels write to its own tensor before a fence is there for the others behind
// it.
void await_own_writes(Communicator& group, const altorch::Window& window, WindowStreams& streams,
                      std::chrono::milliseconds timeout) {
  const auto turn = streams.begin(/*async=*/false, WindowStreams::kAccesses);
  if (turn.captured) return;
  const Operation fence = one_sided(group, window.number(), {"fence", "fence"}, kAnySource, timeout);
  Wait wait = group.watchdog().begin_wait(fence);
  c10::Event reached(c10::DeviceType::CUDA);
  reached.record(turn.stream);
  AdaptiveWait pauses;
  while (!reached.query()) {
    if (const auto noticed = group.watchdog().look_after(fence, wait, std::chrono::steady_clock::now()))
      throw group.watchdog().fail(fence, *noticed, wait);
    pauses.pause();
  }
}

}  // namespace

AlWindow::AlWindow(std::shared_ptr<Communicator> communicator, std::chrono::milliseconds timeout,
                   OnError on_error, bool has_exact_sums)
    : communicator_(std::move(communicator)),
      timeout_(timeout),
      on_error_(on_error),
      has_exact_sums_(has_exact_sums),
      finished_(c10::make_intrusive<AlWork>(communicator_->rank(), c10d::OpType::UNKNOWN, 0,
                                            std::vector<at::Tensor>())) {}

AlWindow::Open AlWindow::open() const {
  const std::lock_guard lock(mutex_);
  if (open_.window) return open_;
  throw Error(ErrorKind::kClosed,
              "the window has no tensor, it is not registered; call tensor_register() on all ranks first");
}

template <class Body>
auto AlWindow::asked(const Asking& asking, std::optional<std::int64_t> rank, Body&& body) const
    -> decltype(body(0)) {
  return guarded([&] {
    SignalCheck::refuse_in_handler();
    const bool exists = !rank || (*rank >= 0 && *rank < communicator_->size());
    const int peer = rank && exists ? static_cast<int>(*rank) : kAnySource;
    try {
      if (!exists) throw no_such_rank(*rank, *communicator_);
      return body(peer);
    } catch (const Error& error) {
      if (error.has_label() || std::string_view(error.what()).starts_with("altorch: ")) throw;
      int number = 0;
      {
        const std::lock_guard lock(mutex_);
        if (open_.window) number = open_.window->number();
      }
      throw communicator_->explain(one_sided(*communicator_, number, asking, peer), error);
    }
  });
}

void AlWindow::register_tensor(const at::Tensor& tensor, bool owning) {
  asked({"tensor_register", "tensor_register"}, std::nullopt, [&](int) { set_tensor(tensor, owning); });
}

void AlWindow::set_tensor(const at::Tensor& tensor, bool owning) {
  const std::lock_guard one_by_one(registering_);
  {
    const std::lock_guard lock(mutex_);
    if (open_.window)
      throw invalid(
          "double registration: the window has a tensor; call tensor_deregister() on all ranks first");
  }
  const std::string unsupported_reason = unsupported_reason_of(tensor);
  Registered own;
  std::byte* memory = nullptr;
  if (unsupported_reason.empty()) {
    own = {static_cast<std::size_t>(tensor.numel()) * tensor.element_size(), dtype_of(tensor)};
    memory = static_cast<std::byte*>(tensor.data_ptr());
  }
  std::shared_ptr<void> keep;
  if (owning && unsupported_reason.empty()) keep = std::make_shared<Kept>(tensor.storage());
  const bool on_gpu = unsupported_reason.empty() && tensor.is_cuda();
  const c10::OptionalDeviceGuard back =
      on_gpu ? c10::OptionalDeviceGuard(tensor.device()) : c10::OptionalDeviceGuard();
  const WindowGpu gpu{on_gpu ? tensor.device().index() : 0, cuda_gpus(), on_error_};
  Open opened;
  opened.window = altorch::open_window(*communicator_, memory, own, std::move(keep), timeout_,
                                       unsupported_reason, on_gpu ? &gpu : nullptr);
  if (on_gpu) {
    opened.streams = std::make_shared<WindowStreams>(tensor.device());
    CudaWatch::instance().add(opened.window);
  }
  const std::lock_guard lock(mutex_);
  open_ = std::move(opened);
  own_ = owning ? tensor.detach().view({-1})
                : row_at(memory, tensor.numel(), tensor.options().requires_grad(false), [](void*) {});
}

void AlWindow::deregister_tensor() {
  asked({"tensor_deregister", "tensor_deregister"}, std::nullopt, [&](int) { release_tensor(); });
}

void AlWindow::release_tensor() {
  const auto [released, streams] = open();
  const auto back = on_device_of(streams);
  released->close(timeout_);
  at::Tensor tensor;  // both go outside the lock
  Open gone;
  const std::lock_guard lock(mutex_);
  if (open_.window != released) return;
  gone = std::exchange(open_, {});
  tensor = std::move(own_);
}

WindowCall AlWindow::describe(Access access, const at::Tensor& tensor, const Place& place) const {
  check_tensor(tensor, "the tensor");
  const auto streams = open().streams;
  const c10::Device device = streams ? streams->device() : c10::Device(c10::DeviceType::CPU);
  if (tensor.device() != device)
    throw invalid("the tensor is on " + tensor.device().str() + "; this window takes tensors on " +
                  device.str());
  WindowCall call = describe_elements(access, dtype_of(tensor), tensor.numel(), place);
  const std::size_t element = tensor.element_size();
  if (!place.stride || tensor.numel() == 0) return call;
  call.rows = tensor.dim() == 0 ? 1 : static_cast<std::size_t>(tensor.size(0));
  call.row_bytes /= call.rows;
  const auto row = static_cast<std::int64_t>(call.row_bytes / element);
  if (*place.stride < row || static_cast<std::uint64_t>(*place.stride) > kFar / element / call.rows) {
    throw invalid("the stride is " + std::to_string(*place.stride) + ", and a row of the tensor has " +
                  std::to_string(row) + " elements");
  }
  call.stride = static_cast<std::size_t>(*place.stride) * element;
  return call;
}

AlWindow::WorkPtr AlWindow::under_way(const std::shared_ptr<WindowTask>& task, std::vector<at::Tensor> keep,
                                      std::function<void()> finish) {
  if (task->finished() && task->error) {
    if (!task->buffers_free) AlWork::leak_intentionally(std::move(keep));
    throw Error(*task->error);
  }
  if (task->finished()) {
    if (finish) finish();
    return finished_;
  }
  auto work = c10::make_intrusive<AlWork>(communicator_->rank(), c10d::OpType::UNKNOWN, 0,
                                          std::vector<at::Tensor>(), communicator_);
  work->add_task(task, std::move(keep), std::move(finish));
  task->window->post(task);
  work->seal();
  return work;
}

AlWindow::WorkPtr AlWindow::run_on_stream(const Open& opened, WindowCall call,
                                          const std::vector<at::Tensor>& touched, bool async, Timeout timeout,
                                          const std::function<void()>& finish) {
  const auto back = on_device_of(opened.streams);
  const auto turn = opened.streams->begin(async, WindowStreams::kAccesses);
  call.stream = turn.stream.native_handle();
  call.captured = turn.captured;
  if (async || turn.back) opened.streams->touch(turn, touched);
  bool ignored = true;
  opened.window->access(call, deadline(timeout), ignored);
  if (call.held_at != kNoSlot) CudaWatch::instance().wake();
  if (finish) {
    const c10::StreamGuard on(turn.stream);
    finish();
  }
  opened.streams->rejoin(turn);
  return async ? opened.streams->end(turn, communicator_->rank(), opened.window) : finished_;
}

AlWindow::WorkPtr AlWindow::run(WindowCall call, std::vector<at::Tensor> keep, bool async, Timeout timeout,
                                std::function<void()> finish) {
  const Open all = open();
  const auto& opened = all.window;
  if (all.streams) return run_on_stream(all, std::move(call), keep, async, timeout, finish);
  if (async)
    return under_way(opened->start(std::move(call), deadline(timeout)), std::move(keep), std::move(finish));
  bool buffers_free = true;
  try {
    opened->access(call, deadline(timeout), buffers_free);
  } catch (...) {
    if (!buffers_free) AlWork::leak_intentionally(std::move(keep));
    throw;
  }
  if (finish) finish();
  return finished_;
}

AlWindow::WorkPtr AlWindow::put(const at::Tensor& tensor, const Place& place, bool async, Timeout timeout,
                                std::optional<int> slot) {
  return asked(asking(Access::kPut), place.rank, [&](int) {
    if (slot) check_slot(*slot);
    WindowCall call = describe(Access::kPut, tensor, place);
    Block block(tensor);
    block.load();
    call.from = block.data();
    call.slot = slot.value_or(kNoSlot);
    return run(std::move(call), {block.tensor()}, async, timeout);
  });
}

AlWindow::WorkPtr AlWindow::accumulate(const at::Tensor& tensor, const Place& place, const std::string& op,
                                       bool async, Timeout timeout) {
  return asked(asking(Access::kAccumulate), place.rank, [&](int) {
    WindowCall call = describe(Access::kAccumulate, tensor, place);
    call.op = reduce_op_named(op);
    if (call.op == ReduceOp::kAvg || call.op == ReduceOp::kPremulSum || is_exact(call.op))
      throw invalid("accumulate takes SUM, PRODUCT, MIN, MAX, BAND, BOR and BXOR, not " + op);
    if (has_exact_sums_) exact_op_for(OpKind::kOneSided, call.op, call.dtype);
    Block block(tensor);
    block.load();
    call.from = block.data();
    return run(std::move(call), {block.tensor()}, async, timeout);
  });
}

AlWindow::WorkPtr AlWindow::get(const at::Tensor& tensor, const Place& place, bool async, Timeout timeout) {
  return asked(asking(Access::kGet), place.rank, [&](int) {
    WindowCall call = describe(Access::kGet, tensor, place);
    Block block(tensor);
    block.check_storable();
    call.into = block.data();
    std::function<void()> finish;
    if (block.staged()) finish = [block] { block.store(); };
    return run(std::move(call), {tensor, block.tensor()}, async, timeout, std::move(finish));
  });
}

std::int64_t AlWindow::fetch_add(std::int64_t rank, std::int64_t offset, std::int64_t value,
                                 Timeout timeout) {
  return asked(asking(Access::kFetchAdd), rank,
               [&](int peer) { return count(Access::kFetchAdd, peer, offset, value, 0, timeout); });
}

std::int64_t AlWindow::compare_swap(std::int64_t rank, std::int64_t offset, std::int64_t expected,
                                    std::int64_t value, Timeout timeout) {
  return asked(asking(Access::kCompareSwap), rank,
               [&](int peer) { return count(Access::kCompareSwap, peer, offset, value, expected, timeout); });
}

// No tensor says of which type: that is the target's affair.
std::int64_t AlWindow::count(Access access, int rank, std::int64_t offset, std::int64_t operand,
                             std::int64_t expected, Timeout timeout) {
  const Open opened = open();
  WindowCall call = describe_elements(access, opened.window->registered(rank).dtype, 1, {rank, offset});
  for (const std::int64_t value : {operand, expected}) {
    if (call.dtype == DType::kInt32 && value != static_cast<std::int32_t>(value))
      throw invalid(std::to_string(value) + " is no number of int32, which the window holds");
  }
  call.operand = operand;
  call.expected = expected;
  const auto back = on_device_of(opened.streams);
  std::optional<WindowStreams::Turn> turn;
  if (opened.streams) {
    turn = opened.streams->begin(/*async=*/false, WindowStreams::kAccesses);
    call.stream = turn->stream.native_handle();
    call.captured = turn->captured;
  }
  bool buffers_free = true;
  opened.window->access(call, deadline(timeout), buffers_free);
  if (turn) opened.streams->rejoin(*turn);
  return call.found;
}

AlWindow::WorkPtr AlWindow::signal_rank(std::int64_t rank, int slot, bool async, Timeout timeout) {
  return asked(asking(Access::kSignal), rank, [&](int peer) {
    WindowCall call;
    call.peer = peer;
    call.slot = check_slot(slot);
    return run(std::move(call), {}, async, timeout);
  });
}

AlWindow::WorkPtr AlWindow::wait_for_signal(std::int64_t rank, int slot, bool async, Timeout timeout) {
  return asked(kWaitForSignal, rank, [&](int source) -> WorkPtr {
    const Open all = open();
    const auto& opened = all.window;
    check_slot(slot);
    if (all.streams) {
      const auto back = on_device_of(all.streams);
      const auto turn = all.streams->begin(async, source);
      opened->enqueue_wait(source, slot, turn.stream.native_handle(), turn.captured, deadline(timeout),
                           [] { CudaWatch::instance().wake(); });
      all.streams->rejoin(turn);
      return async ? all.streams->end(turn, communicator_->rank(), opened) : finished_;
    }
    if (async) return under_way(opened->start_wait(source, slot, deadline(timeout)), {}, nullptr);
    opened->wait_signal(source, slot, deadline(timeout));
    return finished_;
  });
}

void AlWindow::flush(std::optional<std::int64_t> rank) {
  asked(kFlush, rank, [&](int peer) {
    const auto [opened, streams] = open();
    const auto back = on_device_of(streams);
    opened->flush(peer);
    opened->drain(timeout_);
  });
}

void AlWindow::fence() {
  asked({"fence", "fence"}, std::nullopt, [&](int) {
    const auto [opened, streams] = open();
    const auto back = on_device_of(streams);
    if (streams) await_own_writes(*communicator_, *opened, *streams, timeout_);
    opened->fence(timeout_);
  });
}

at::Tensor AlWindow::map(std::int64_t rank) {
  return asked(kMap, rank, [&](int peer) {
    const Open all = open();
    const auto& opened = all.window;
    if (peer == communicator_->rank()) {
      const std::lock_guard lock(mutex_);
      return own_;
    }
    const Registered& theirs = opened->registered(peer);
    std::byte* memory = opened->map(peer);
    if (!memory) {
      throw Error(ErrorKind::kUnsupported, std::string("it cannot be mapped here (its window goes by ") +
                                               opened->route() +
                                               "); ranks of one node can map what altorch.empty() has made");
    }
    // The window holds the mapping.
    const auto count = static_cast<std::int64_t>(theirs.bytes / size_of(theirs.dtype));
    const at::TensorOptions options = at::TensorOptions()
                                          .dtype(scalar_type_of(theirs.dtype))
                                          .device(all.streams ? all.streams->device() : at::Device(at::kCPU));
    return row_at(memory, count, options, [opened](void*) {});
  });
}

std::string AlWindow::route() {
  return asked({"route", "route"}, std::nullopt, [&](int) { return std::string(window()->route()); });
}

#ifdef C10D_BACKEND_HAS_WINDOW
namespace {

AlWindow::Timeout timeout_of(std::chrono::milliseconds timeout) {
  return timeout == c10d::kUnsetTimeout ? AlWindow::Timeout() : clamp_timeout(timeout);
}

}  // namespace

void AlWindow::tensor_register(const at::Tensor& tensor, bool owning) { register_tensor(tensor, owning); }
void AlWindow::tensor_deregister() { deregister_tensor(); }
AlWindow::WorkPtr AlWindow::put(const at::Tensor& tensor, std::int64_t rank, std::int64_t offset, bool async,
                                const c10d::PutOptions& options) {
  return put(tensor, {rank, offset}, async, timeout_of(options.timeout));
}
AlWindow::WorkPtr AlWindow::signal(std::int64_t rank, bool async, const c10d::SignalOptions& options) {
  return signal_rank(rank, 0, async, timeout_of(options.timeout));
}
AlWindow::WorkPtr AlWindow::wait_signal(std::int64_t rank, bool async,
                                        const c10d::WaitSignalOptions& options) {
  return wait_for_signal(rank, 0, async, timeout_of(options.timeout));
}
at::Tensor AlWindow::map_remote_tensor(std::int64_t rank) { return map(rank); }
// The owner's own view and that of the others are one memory on every route.
c10d::WindowAttr AlWindow::get_attr(std::int64_t) { return {c10d::WindowAccessType::UNIFIED}; }

c10::intrusive_ptr<c10d::Window> AlBackend::new_window(const std::optional<at::Tensor>& tensor) {
  return open_window(tensor);
}
#endif

c10::intrusive_ptr<AlWindow> AlBackend::open_window(const std::optional<at::Tensor>& tensor) {
  return guarded([&] {
    refuse_in_estimate("windows");
    auto window = c10::make_intrusive<AlWindow>(
        communicator_, options_->timeout, options_->on_error.value_or(on_error_setting()), has_exact_sums());
    if (tensor) window->register_tensor(*tensor, /*owning=*/true);
    return window;
  });
}

namespace {

// Frees memory of altorch.empty() once all streams of the device have come to their ends, as
// cudaFree() does. While a graph is captured they cannot be waited for; then the next such free or
// allocation on the device tries again. Thread rules: any thread.
class FreeWhenIdle {
 public:
  static FreeWhenIdle& instance() {
    static auto* all = new FreeWhenIdle();  // never destroyed: tensors may outlive static objects
    return *all;
  }
  void add(c10::Device device, DeviceMemory memory) {
    const std::lock_guard lock(mutex_);
    waiting_[device.index()].push_back(std::move(memory));
  }
  void free(CudaDevice& gpu, c10::Device device) {
    std::vector<DeviceMemory> ours;
    {
      const std::lock_guard lock(mutex_);
      ours.swap(waiting_[device.index()]);
    }
    if (ours.empty()) return;
    try {
      if (!is_any_captured(device) && gpu.wait_until_idle()) return;
    } catch (const std::exception&) {  // the process ends
    }
    for (DeviceMemory& memory : ours) add(device, std::move(memory));
  }

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::vector<DeviceMemory>> waiting_;
};

struct ExportedTensor {
  explicit ExportedTensor(int gpu) : index(gpu), device(gpu) {}
  ~ExportedTensor() {
    if (!memory) return;
    const WithoutPython released;  // another thread may be about to call what the device waits for
    forget_shareable(memory.get());
    const c10::Device here(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
    const c10::DeviceGuard back(here);
    FreeWhenIdle::instance().add(here, std::move(memory));
    FreeWhenIdle::instance().free(device, here);
  }
  ExportedTensor(const ExportedTensor&) = delete;
  const int index;
  CudaDevice device;
  DeviceMemory memory;
};

std::shared_ptr<std::byte> allocate_exported(std::size_t bytes, int index) {
  if (const auto why = CudaDevice::unsupported_reason(index))
    throw Error(ErrorKind::kUnsupported, "altorch.empty: " + *why);
  if (const auto why = CudaDevice::export_unsupported_reason(index))
    throw Error(ErrorKind::kUnsupported, "altorch.empty: " + *why);
  const c10::Device here(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index));
  const c10::DeviceGuard back(here);
  auto made = std::make_shared<ExportedTensor>(index);
  FreeWhenIdle::instance().free(made->device, here);
  Device::Exported exported = made->device.export_memory(std::max<std::size_t>(bytes, 1));
  made->memory = std::move(exported.memory);
  remember_shareable(made->memory.get(), std::max<std::size_t>(bytes, 1), std::move(exported.descriptor));
  return {made, made->memory.get()};
}

}  // namespace

at::Tensor empty_shareable(const std::vector<std::int64_t>& sizes, at::ScalarType dtype, c10::Device device) {
  return guarded([&] {
    std::size_t bytes = c10::elementSize(dtype);
    for (const std::int64_t size : sizes) {
      if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes))
        throw invalid("altorch.empty: there is no tensor with a size of " + std::to_string(size));
    }
    if (!device.is_cpu() && !device.is_cuda())
      throw invalid("altorch.empty: there is no such tensor on " + device.str());
    if (device.is_cuda() && !device.has_index()) device = cuda_guard().getDevice();
    const auto memory =
        device.is_cuda() ? allocate_exported(bytes, device.index()) : allocate_shareable(bytes);
    return at::for_blob(memory.get(), sizes)
        .deleter([memory](void*) {})
        .options(at::TensorOptions().dtype(dtype).device(device))
        .target_device(device)
        .make_tensor();
  });
}

}  // namespace altorch::backend
