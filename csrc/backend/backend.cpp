#include "backend/backend.h"

#include <ATen/ATen.h>

#include "backend/cuda_watch.h"
#include "backend/issue.h"
#include "backend/premul.h"
#include "backend/publish_nccl.h"
#include "backend/store.h"
#include "reduction/reduce.h"

namespace altorch::backend {

AlBackend::AlBackend(GroupSettings settings, std::shared_ptr<Communicator> communicator,
                     c10::intrusive_ptr<AlOptions> options)
    : Backend(settings.rank, settings.size),
      settings_(std::move(settings)),
      communicator_(std::move(communicator)),
      options_(std::move(options)) {}

AlBackend::~AlBackend() { communicator_->close("the group was destroyed"); }

void AlBackend::abort() {
  communicator_->close("the group was aborted", /*tell=*/true);
  for (const auto& group : cuda_groups()) group->abort("the group was aborted");
}

void AlBackend::shutdown() { communicator_->close("the group was destroyed"); }

std::chrono::milliseconds AlBackend::deadline(std::chrono::milliseconds timeout) const {
  return timeout.count() > 0 ? timeout : options_->timeout;
}

void AlBackend::check_rank(std::int64_t rank, const char* what) const {
  if (rank >= 0 && rank < getSize()) return;
  throw Error(ErrorKind::kInvalidArgument, std::string(what) + " is rank " + std::to_string(rank) +
                                               " of the group, which has ranks 0 to " +
                                               std::to_string(getSize() - 1));
}

std::vector<std::shared_ptr<CudaGroup>> AlBackend::cuda_groups() {
  const std::lock_guard lock(cuda_mutex_);
  return cuda_groups_;
}

// `operation`: one that needs it; its ranks may have to come together first.
std::shared_ptr<CudaGroup> AlBackend::cuda_group(const Operation& operation) {
  const int device = operation.device;
  const std::lock_guard lock(cuda_mutex_);
  for (const auto& group : cuda_groups_) {
    if (group->device().index() == device) return group;
  }
  if (!cuda_groups_.empty()) {
    throw Error(ErrorKind::kInvalidArgument, "the tensors are on cuda:" + std::to_string(device) +
                                                 ", and this rank's part of the group is on " +
                                                 cuda_groups_.front()->device().str() +
                                                 "; use one GPU per rank (torch.cuda.set_device)");
  }
  GpuRouteOptions routes;
  routes.make_carrier = [this] { return make_carrier(); };
  routes.nccl = options_->nccl;
  routes.marks_results = options_->on_error == OnError::kPoison;
  if (device == inherited_on_) routes.nccl_communicator = std::move(inherited_nccl_);
  routes.publish_nccl = [name = settings_.name, device](nccl::Comm comm, bool exists) {
    publish_nccl(name, device, comm, exists);
  };
  auto group =
      std::make_shared<CudaGroup>(communicator_, operation, options_->timeout,
                                  options_->is_high_priority_stream, options_->on_error, std::move(routes));
  CudaWatch::instance().add(group);
  cuda_groups_.push_back(group);
  return group;
}

void AlBackend::eagerConnectSingleDevice(at::Device device) {
  if (!device.is_cuda()) return;
  Operation usual;  // no call of anybody's
  usual.kind = OpKind::kAllReduce;
  usual.dtype = DType::kFloat32;
  usual.count = 1;
  usual.device = device.index();
  usual.timeout = options_->timeout;
  guarded([&] {
    try {
      cuda_group(usual)->connect(usual);
    } catch (const Error& error) {
      throw communicator_->explain(usual, error);
    }
  });
}

nccl::Communicator& AlBackend::nccl_communicator() {
  for (const auto& group : cuda_groups()) {
    if (auto* found = group->nccl_communicator()) return *found;
  }
  throw Error(
      ErrorKind::kUnsupported,
      "altorch: group '" + settings_.name +
          "' has no NCCL communicator yet; give init_process_group a device_id, or run an operation on "
          "a CUDA tensor first (`altorch explain --device cuda` says when NCCL carries it)");
}

void AlBackend::add_buffer(std::uintptr_t address, std::size_t bytes, bool symmetric) {
  guarded([&] { nccl_communicator().add_buffer(reinterpret_cast<void*>(address), bytes, symmetric); });
}

void AlBackend::remove_buffer(std::uintptr_t address) {
  guarded([&] { nccl_communicator().remove_buffer(reinterpret_cast<void*>(address)); });
}

// What no route takes was refused; anything else may have begun.
Error AlBackend::not_launched(const Operation& operation, const Error& error) {
  const bool refused = error.kind() == ErrorKind::kInvalidArgument || error.kind() == ErrorKind::kUnsupported;
  return refused ? communicator_->refuse(operation, error) : communicator_->give_up(operation, error);
}

AlBackend::WorkPtr AlBackend::launch(c10d::OpType type, Call call, bool async,
                                     std::unique_lock<std::mutex>* turn) {
  if (call.operation.device == kHostDevice) return launch_on_host(type, std::move(call), async, turn);
  const Operation operation = call.operation;
  try {
    const auto group = cuda_group(operation);
    {
      const std::lock_guard lock(window_mutex_);
      if (window_) {
        window_calls_.push_back(std::move(call));
        return c10::make_intrusive<AlWork>(getRank(), type, operation.sequence, Tensors());
      }
    }
    std::vector<Call> calls;
    calls.push_back(std::move(call));
    return group->launch(type, std::move(calls), async);
  } catch (const Error& error) {
    throw not_launched(operation, error);
  }
}

AlBackend::WorkPtr AlBackend::launch_on_host(c10d::OpType type, Call call, bool async,
                                             std::unique_lock<std::mutex>* turn) {
  for (Block& block : call.loads) block.load();
  const std::uint64_t sequence = call.operation.sequence;
  c10::intrusive_ptr<AlWork> window;
  {
    const std::lock_guard lock(window_mutex_);
    window = window_;
  }
  if (!async && !window) {
    call.bind();
    bool buffers_free = true;
    try {
      communicator_->run(call.operation, buffers_free, turn);
    } catch (...) {
      if (!buffers_free) AlWork::keep_for_ever({call.keep.begin(), call.keep.end()});
      throw;
    }
    for (const Block& block : call.stores) block.store();
    return nullptr;  // nothing to wait for, as with ProcessGroupNCCL: a Work costs a microsecond in Python
  }
  auto task = std::make_shared<Task>();
  task->operation = call.operation;
  task->input_counts = std::move(call.input_counts);
  task->output_counts = std::move(call.output_counts);
  task->operation.input_counts = task->input_counts;
  task->operation.output_counts = task->output_counts;
  std::function<void()> finish;
  if (!call.stores.empty()) {
    finish = [stores = std::move(call.stores)] {
      for (const Block& block : stores) block.store();
    };
  }
  auto work = window;
  if (window) {
    window->add_outputs(call.outputs);
  } else {
    work = c10::make_intrusive<AlWork>(getRank(), type, sequence, std::move(call.outputs), communicator_);
  }
  work->add_task(task, {call.keep.begin(), call.keep.end()}, std::move(finish));
  try {
    communicator_->submit(task);
  } catch (...) {
    work->abandon(*task);
    throw;
  }
  if (window) return c10::make_intrusive<AlWork>(getRank(), type, sequence, Tensors());
  work->seal();
  return work;
}

void AlBackend::startCoalescing() {
  const std::lock_guard lock(window_mutex_);
  TORCH_CHECK(!window_, "altorch: a coalescing window is open already; windows do not nest");
  window_ = c10::make_intrusive<AlWork>(getRank(), c10d::OpType::COALESCED, communicator_->sequence(),
                                        Tensors(), communicator_);
}

AlBackend::WorkPtr AlBackend::endCoalescing() {
  const std::lock_guard lock(window_mutex_);
  TORCH_CHECK(window_, "altorch: there is no coalescing window to end");
  auto work = std::move(window_);
  window_ = nullptr;
  work->seal();
  if (window_calls_.empty()) return work;
  auto calls = std::exchange(window_calls_, {});
  return guarded([&]() -> WorkPtr {
    if (work->has_tasks()) {
      throw Error(ErrorKind::kUnsupported,
                  "altorch: a coalescing window takes CPU tensors or CUDA tensors, not both");
    }
    const Operation first = calls.front().operation;
    try {
      return cuda_group(first)->launch(c10d::OpType::COALESCED, std::move(calls), /*async=*/true);
    } catch (const Error& error) {
      throw not_launched(first, error);
    }
  });
}

void AlBackend::set_reduction(Operation& operation, const c10d::ReduceOp& op,
                              const at::Tensor& tensor) const {
  operation.dtype = dtype_of(tensor);
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      operation.op = ReduceOp::kSum;
      break;
    case c10d::ReduceOp::AVG:
      operation.op = ReduceOp::kAvg;
      break;
    case c10d::ReduceOp::PRODUCT:
      operation.op = ReduceOp::kProduct;
      break;
    case c10d::ReduceOp::MIN:
      operation.op = ReduceOp::kMin;
      break;
    case c10d::ReduceOp::MAX:
      operation.op = ReduceOp::kMax;
      break;
    case c10d::ReduceOp::BAND:
      operation.op = ReduceOp::kBand;
      break;
    case c10d::ReduceOp::BOR:
      operation.op = ReduceOp::kBor;
      break;
    case c10d::ReduceOp::BXOR:
      operation.op = ReduceOp::kBxor;
      break;
    case c10d::ReduceOp::PREMUL_SUM: {
      operation.op = ReduceOp::kPremulSum;
      const auto* factor = static_cast<const PremulSupplement*>(op.supplement_.get());
      if (!factor) throw Error(ErrorKind::kInvalidArgument, "PREMUL_SUM comes without its factor");
      operation.factor =
          factor->tensor_factor.defined() ? factor->tensor_factor.item<double>() : factor->double_factor;
      break;
    }
    default:
      throw Error(ErrorKind::kInvalidArgument, "the reduction is none that torch.distributed defines");
  }
  if (can_reduce(operation.dtype, operation.op)) return;
  throw Error(ErrorKind::kInvalidArgument, std::string(name_of(operation.op)) + " is not defined for " +
                                               name_of(operation.dtype) +
                                               "; convert the tensor or choose another reduction");
}

c10::intrusive_ptr<c10d::Backend> AlBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                   const std::vector<int>& ranks,
                                                   const c10::intrusive_ptr<Options>& options) {
  // torch 2.11 asks once for each type of device, with one store, and keeps the first answer.
  if (store && last_split_store_.lock() == store) return last_split_.lock();
  auto made = guarded([&] { return make_split(store, ranks, options); });
  last_split_store_ = c10::weak_intrusive_ptr<c10d::Store>(store);
  last_split_ = c10::weak_intrusive_ptr<c10d::Backend>(made);
  return made;
}

c10::intrusive_ptr<c10d::Backend> AlBackend::make_split(const c10::intrusive_ptr<c10d::Store>& store,
                                                        const std::vector<int>& ranks,
                                                        const c10::intrusive_ptr<Options>& options) {
  const int split = splits_++;
  const auto mine = std::find(ranks.begin(), ranks.end(), getRank());
  if (mine == ranks.end()) {
    split_nccl(nullptr, nccl::kNoColor, 0, 0);
    return nullptr;
  }
  GroupSettings child = settings_;
  child.name = options && !options->group_name.empty() ? options->group_name
                                                       : settings_.name + "/split" + std::to_string(split);
  child.rank = static_cast<int>(mine - ranks.begin());
  child.size = static_cast<int>(ranks.size());
  child.job_ranks.clear();
  child.mpi_ranks.clear();
  // Disjoint groups may be split off in one call.
  std::string key = settings_.key_prefix + "/split" + std::to_string(split);
  for (const int rank : ranks) {
    check_rank(rank, "a member of the split");
    child.job_ranks.push_back(settings_.job_ranks[static_cast<std::size_t>(rank)]);
    if (!settings_.mpi_ranks.empty())
      child.mpi_ranks.push_back(settings_.mpi_ranks[static_cast<std::size_t>(rank)]);
    key += "." + std::to_string(rank);
  }
  const auto* asked = dynamic_cast<const AlOptions*>(options.get());
  auto child_options = c10::make_intrusive<AlOptions>(asked ? *asked : *options_);
  if (options) child_options->timeout = options->timeout;
  child.timeout = child_options->timeout;
  child_options->group_name = child.name;
  Rendezvous group(store, std::move(child), key, /*is_job=*/false, *child_options);
  auto made = make_child(group, std::move(child_options));
  split_nccl(made.get(), ranks.front(), group.settings().rank, group.settings().size);
  return made;
}

// Faster than a communicator from nothing. All ranks of the group made theirs together, so either all have
// one or none.
void AlBackend::split_nccl(AlBackend* child, int color, int key, int size) {
  for (const auto& group : cuda_groups()) {
    auto* parent = group->nccl_communicator();
    if (!parent) continue;
    const auto& options = child ? *child->options_ : *options_;
    auto part = parent->split(color, key, group->device().index(), size, options.timeout, options.nccl);
    ++nccl_splits_;
    if (!child) return;
    child->inherited_on_ = group->device().index();
    child->inherited_nccl_ = std::move(part);
    return;
  }
}

c10::intrusive_ptr<AlBackend> AlBackend::make_child(Rendezvous& group,
                                                    c10::intrusive_ptr<AlOptions> options) {
  return c10::make_intrusive<AlBackend>(group.settings(), join(group), std::move(options));
}

std::shared_ptr<Communicator> AlBackend::join(Rendezvous& group) { return join_group(group); }

std::shared_ptr<Communicator> AlBackend::make_carrier() {
  GroupSettings carrier = settings_;
  carrier.name += " (host_staged)";
  carrier.timeout = options_->timeout;
  Rendezvous group(dynamic_cast<C10dStore&>(communicator_->store()).c10d(), std::move(carrier),
                   settings_.key_prefix + "/host_staged", /*is_job=*/false, *options_);
  return join(group);
}

}  // namespace altorch::backend
