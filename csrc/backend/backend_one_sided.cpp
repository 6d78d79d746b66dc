// One-sided access to tensors of other ranks.
#include <ATen/ops/from_blob.h>

#include "backend/backend.h"
#include "backend/errors.h"
#include "backend/one_sided.h"
#include "common/reduce_op.h"
#include "engine/explain.h"
#include "transports/shm/shareable.h"

namespace altorch::backend {
namespace {

Error invalid(const std::string& what) { return Error(ErrorKind::kInvalidArgument, what); }

// The bytes that others may touch, as they are, whatever becomes of the tensor: it may be given others (`data`, set_()), but
// these are neither freed nor moved.
struct Kept {
  explicit Kept(c10::Storage kept) : storage(std::move(kept)), was_resizable(storage.resizable()) {
    storage.unsafeGetStorageImpl()->set_resizable(false);
  }
  ~Kept() { storage.unsafeGetStorageImpl()->set_resizable(was_resizable); }
  Kept(const Kept&) = delete;

  c10::Storage storage;
  bool was_resizable;
};

// What is no int is no rank either, and is refused as one.
int peer_of(std::int64_t rank) {
  return static_cast<int>(std::clamp<std::int64_t>(rank, -1, std::numeric_limits<int>::max()));
}

// Why it cannot be registered, as a clause; empty: it can.
std::string obstacle_of(const at::Tensor& tensor) {
  try {
    check_tensor(tensor, "the window's tensor");
    dtype_of(tensor);
  } catch (const Error& error) {
    return error.what();
  }
  if (!tensor.is_cpu()) return "its tensor is on " + tensor.device().str() + ", and windows take CPU tensors";
  return is_plain(tensor) && tensor.is_contiguous() ? "" : "its tensor is not contiguous";
}

}  // namespace

AlWindow::AlWindow(AlBackend& backend, std::shared_ptr<Communicator> communicator,
                   std::chrono::milliseconds timeout)
    : backend_(c10::intrusive_ptr<c10d::Backend>::reclaim_copy(&backend)),
      communicator_(std::move(communicator)),
      timeout_(timeout),
      finished_(c10::make_intrusive<AlWork>(communicator_->rank(), c10d::OpType::UNKNOWN, 0,
                                            std::vector<at::Tensor>())) {}

std::shared_ptr<altorch::Window> AlWindow::window() const {
  const std::lock_guard lock(mutex_);
  if (window_) return window_;
  throw Error(ErrorKind::kClosed,
              "altorch: the window has no tensor; call tensor_register() on all ranks first");
}

void AlWindow::register_tensor(const at::Tensor& tensor, bool owning) {
  const std::lock_guard one_by_one(registering_);
  {
    const std::lock_guard lock(mutex_);
    if (window_)
      throw invalid("altorch: the window has a tensor; call tensor_deregister() on all ranks first");
  }
  const std::string obstacle = obstacle_of(tensor);
  Registered own;
  std::byte* memory = nullptr;
  if (obstacle.empty()) {
    own = {static_cast<std::size_t>(tensor.numel()) * tensor.element_size(), dtype_of(tensor)};
    memory = static_cast<std::byte*>(tensor.data_ptr());
  }
  std::shared_ptr<void> keep;
  if (owning && obstacle.empty()) keep = std::make_shared<Kept>(tensor.storage());
  auto opened = altorch::open_window(*communicator_, memory, own, std::move(keep), timeout_, obstacle);
  const std::lock_guard lock(mutex_);
  window_ = std::move(opened);
  own_ = owning ? tensor.detach().view({-1})
                : at::from_blob(memory, {tensor.numel()}, tensor.options().requires_grad(false));
}

void AlWindow::deregister_tensor() {
  const auto released = window();
  released->close(timeout_);
  at::Tensor tensor;  // goes outside the lock
  const std::lock_guard lock(mutex_);
  if (window_ != released) return;
  window_.reset();
  tensor = std::move(own_);
}

WindowCall AlWindow::describe(Access access, const at::Tensor& tensor, const Place& place) const {
  check_tensor(tensor, "the tensor");
  if (!tensor.is_cpu())
    throw invalid("altorch: the tensor is on " + tensor.device().str() + "; this window takes CPU tensors");
  if (place.offset < 0)
    throw invalid("altorch: the offset is " + std::to_string(place.offset) + ", and may not be negative");
  const std::size_t element = tensor.element_size();
  WindowCall call;
  call.access = access;
  call.peer = peer_of(place.rank);
  call.dtype = dtype_of(tensor);
  constexpr std::uint64_t kFar = std::uint64_t{1} << 62;
  call.offset = static_cast<std::size_t>(place.offset) < kFar / element
                    ? static_cast<std::size_t>(place.offset) * element
                    : kFar;
  call.row_bytes = static_cast<std::size_t>(tensor.numel()) * element;
  call.stride = call.row_bytes;
  if (!place.stride || tensor.numel() == 0) return call;
  call.rows = tensor.dim() == 0 ? 1 : static_cast<std::size_t>(tensor.size(0));
  call.row_bytes /= call.rows;
  const auto row = static_cast<std::int64_t>(call.row_bytes / element);
  if (*place.stride < row || static_cast<std::uint64_t>(*place.stride) > kFar / element / call.rows) {
    throw invalid("altorch: the stride is " + std::to_string(*place.stride) +
                  ", and a row of the tensor has " + std::to_string(row) + " elements");
  }
  call.stride = static_cast<std::size_t>(*place.stride) * element;
  return call;
}

AlWindow::WorkPtr AlWindow::under_way(const std::shared_ptr<WindowTask>& task, std::vector<at::Tensor> keep,
                                      std::function<void()> finish) {
  if (task->finished() && task->error) {
    if (!task->buffers_free) AlWork::keep_for_ever(std::move(keep));
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

AlWindow::WorkPtr AlWindow::run(WindowCall call, std::vector<at::Tensor> keep, bool async, Patience patience,
                                std::function<void()> finish) {
  const auto opened = window();
  if (async)
    return under_way(opened->start(std::move(call), deadline(patience)), std::move(keep), std::move(finish));
  bool buffers_free = true;
  try {
    opened->access(call, deadline(patience), buffers_free);
  } catch (...) {
    if (!buffers_free) AlWork::keep_for_ever(std::move(keep));
    throw;
  }
  if (finish) finish();
  return finished_;
}

AlWindow::WorkPtr AlWindow::put(const at::Tensor& tensor, const Place& place, bool async, Patience patience,
                                int slot) {
  return guarded([&] {
    WindowCall call = describe(Access::kPut, tensor, place);
    Block block(tensor);
    block.load();
    call.from = block.data();
    call.slot = slot;
    return run(std::move(call), {block.tensor()}, async, patience);
  });
}

AlWindow::WorkPtr AlWindow::accumulate(const at::Tensor& tensor, const Place& place, const std::string& op,
                                       bool async, Patience patience) {
  return guarded([&] {
    WindowCall call = describe(Access::kAccumulate, tensor, place);
    call.op = reduce_op_named(op);
    if (call.op == ReduceOp::kAvg || call.op == ReduceOp::kPremulSum)
      throw invalid("altorch: accumulate takes SUM, PRODUCT, MIN, MAX, BAND, BOR and BXOR, not " + op);
    Block block(tensor);
    block.load();
    call.from = block.data();
    return run(std::move(call), {block.tensor()}, async, patience);
  });
}

AlWindow::WorkPtr AlWindow::get(const at::Tensor& tensor, const Place& place, bool async, Patience patience) {
  return guarded([&] {
    WindowCall call = describe(Access::kGet, tensor, place);
    Block block(tensor);
    block.check_storable();
    call.into = block.data();
    std::function<void()> finish;
    if (block.staged()) finish = [block] { block.store(); };
    return run(std::move(call), {tensor, block.tensor()}, async, patience, std::move(finish));
  });
}

std::int64_t AlWindow::fetch_add(std::int64_t rank, std::int64_t offset, std::int64_t value,
                                 Patience patience) {
  return guarded([&] { return count(Access::kFetchAdd, rank, offset, value, 0, patience); });
}

std::int64_t AlWindow::compare_swap(std::int64_t rank, std::int64_t offset, std::int64_t expected,
                                    std::int64_t value, Patience patience) {
  return guarded([&] { return count(Access::kCompareSwap, rank, offset, value, expected, patience); });
}

// The type is that of what this rank has registered; the target's is compared with it.
std::int64_t AlWindow::count(Access access, std::int64_t rank, std::int64_t offset, std::int64_t operand,
                             std::int64_t expected, Patience patience) {
  const auto opened = window();
  WindowCall call =
      describe(access, at::empty({1}, scalar_type_of(opened->registered(communicator_->rank()).dtype)),
               {rank, offset});
  for (const std::int64_t value : {operand, expected}) {
    if (call.dtype == DType::kInt32 && value != static_cast<std::int32_t>(value))
      throw invalid("altorch: " + std::to_string(value) + " is no number of int32, which the window holds");
  }
  call.operand = operand;
  call.expected = expected;
  bool buffers_free = true;
  opened->access(call, deadline(patience), buffers_free);
  return call.found;
}

AlWindow::WorkPtr AlWindow::signal_rank(std::int64_t rank, int slot, bool async, Patience patience) {
  return guarded([&] {
    WindowCall call;
    call.peer = peer_of(rank);
    call.slot = slot;
    if (slot < 0) throw invalid("altorch: there is no signal slot " + std::to_string(slot));
    return run(std::move(call), {}, async, patience);
  });
}

AlWindow::WorkPtr AlWindow::wait_for_signal(std::int64_t rank, int slot, bool async, Patience patience) {
  return guarded([&]() -> WorkPtr {
    const auto opened = window();
    const int source = peer_of(rank);
    if (slot < 0) throw invalid("altorch: there is no signal slot " + std::to_string(slot));
    if (async) return under_way(opened->start_wait(source, slot, deadline(patience)), {}, nullptr);
    opened->wait_signal(source, slot, deadline(patience));
    return finished_;
  });
}

void AlWindow::flush(std::optional<std::int64_t> rank) {
  guarded([&] { window()->flush(static_cast<int>(rank.value_or(kAnySource))); });
}

void AlWindow::fence() {
  guarded([&] { window()->flush(kAnySource); });
  const auto backend = backend_.lock();
  TORCH_CHECK(backend, "altorch: the group of this window is gone");
  c10d::BarrierOptions options;
  options.asyncOp = false;
  backend->barrier(options);
}

at::Tensor AlWindow::map(std::int64_t rank) {
  return guarded([&] {
    const auto opened = window();
    if (rank < 0 || rank >= communicator_->size())
      throw invalid("altorch: there is no rank " + std::to_string(rank) + " in the group");
    if (rank == communicator_->rank()) {
      const std::lock_guard lock(mutex_);
      return own_;
    }
    const Registered& theirs = opened->registered(static_cast<int>(rank));
    std::byte* memory = opened->map(static_cast<int>(rank));
    if (!memory) {
      throw Error(ErrorKind::kUnsupported, "altorch: the tensor of rank " + std::to_string(rank) +
                                               " cannot be mapped here (its window goes by " +
                                               opened->route() +
                                               "); ranks of one node can map what altorch.empty() has made");
    }
    // The window holds the mapping.
    return at::from_blob(
        memory, {static_cast<std::int64_t>(theirs.bytes / size_of(theirs.dtype))}, [opened](void*) {},
        at::TensorOptions().dtype(scalar_type_of(theirs.dtype)));
  });
}

std::string AlWindow::route() {
  return guarded([&] { return std::string(window()->route()); });
}

#ifdef C10D_BACKEND_HAS_WINDOW
namespace {

AlWindow::Patience patience_of(std::chrono::milliseconds timeout) {
  return timeout == c10d::kUnsetTimeout ? AlWindow::Patience() : timeout;
}

}  // namespace

void AlWindow::tensor_register(const at::Tensor& tensor, bool owning) {
  guarded([&] { register_tensor(tensor, owning); });
}
void AlWindow::tensor_deregister() {
  guarded([&] { deregister_tensor(); });
}
AlWindow::WorkPtr AlWindow::put(const at::Tensor& tensor, std::int64_t rank, std::int64_t offset, bool async,
                                const c10d::PutOptions& options) {
  return put(tensor, {rank, offset}, async, patience_of(options.timeout));
}
AlWindow::WorkPtr AlWindow::signal(std::int64_t rank, bool async, const c10d::SignalOptions& options) {
  return signal_rank(rank, 0, async, patience_of(options.timeout));
}
AlWindow::WorkPtr AlWindow::wait_signal(std::int64_t rank, bool async,
                                        const c10d::WaitSignalOptions& options) {
  return wait_for_signal(rank, 0, async, patience_of(options.timeout));
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
    auto window = c10::make_intrusive<AlWindow>(*this, communicator_, options_->timeout);
    if (tensor) window->register_tensor(*tensor, /*owning=*/true);
    return window;
  });
}

at::Tensor empty_shareable(const std::vector<std::int64_t>& sizes, at::ScalarType dtype) {
  return guarded([&] {
    std::size_t bytes = c10::elementSize(dtype);
    for (const std::int64_t size : sizes) {
      if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes))
        throw invalid("altorch.empty: there is no tensor with a size of " + std::to_string(size));
    }
    const auto memory = allocate_shareable(bytes);
    return at::from_blob(
        memory.get(), sizes, [memory](void*) {}, at::TensorOptions().dtype(dtype));
  });
}

}  // namespace altorch::backend
