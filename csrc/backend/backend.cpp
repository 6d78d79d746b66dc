#include "backend/backend.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backend/cuda_watch.h"
#include "backend/issue.h"
#include "backend/premul.h"
#include "backend/publish_nccl.h"
#include "backend/store.h"
#include "reduction/reduce.h"
#include "transports/loopback/channel.h"

namespace altorch::backend {
namespace {

// torch's flight recorder takes a call that gave no Work for one that hangs. It asks the same variables.
bool is_recorded() {
#if defined(C10D_BACKEND_HAS_HOOKS)
  static const bool on = [] {
    for (const char* name : {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}) {
      const char* value = std::getenv(name);
      if (value && *value) return std::atoi(value) > 0;
    }
    return true;
  }();
  return on;
#else
  return false;
#endif
}

// The caller may give the same options to several groups: a copy for this one.
c10::intrusive_ptr<AlOptions> own_options(const AlOptions& given, const Membership& group) {
  auto own = c10::make_intrusive<AlOptions>(given);
  own->timeout = group.timeout;
  own->group_name = group.name;
  return own;
}

std::shared_ptr<Communicator> join(Rendezvous& group, Transport& transport) {
  const bool alone = group.group().size() == 1;  // who needs no transport
  return std::make_shared<Communicator>(
      group.group(), alone ? std::make_unique<MessageLinks>("self", std::move(make_loopback_channels(1)[0]))
                           : transport.open(group.group(), group.store()));
}

}  // namespace

AlBackend::AlBackend(Rendezvous& group, std::shared_ptr<Transport> transport, const AlOptions& options)
    : Backend(group.group().rank, group.group().size()),
      transport_(std::move(transport)),
      store_lease_(group.lease()),
      communicator_(join(group, *transport_)),
      options_(own_options(options, group.group())),
      finished_(is_recorded() ? c10::make_intrusive<AlWork>(getRank(), c10d::OpType::UNKNOWN, 0, Tensors())
                              : nullptr) {}

AlBackend::~AlBackend() { AlBackend::release_resources(); }

void AlBackend::release_resources() {
  if (!communicator_) return;
  shutdown();
  cuda_groups_.clear();
  communicator_.reset();
  store_lease_.reset();
}

c10d::ErrorType AlBackend::getError() {
  const auto failure = communicator_->failure();
  return failure ? error_type(failure->kind()) : c10d::ErrorType::SUCCESS;
}

void AlBackend::abort() {
  communicator_->close("the group was aborted", /*tell=*/true);
  for (const auto& group : cuda_groups()) group->abort("the group was aborted");
}

void AlBackend::shutdown() {
  if (!communicator_) return;  // released
  transport_->group_ends(communicator_->membership());
  communicator_->close("the group was destroyed");
}

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
  const OnError on_error = options_->on_error.value_or(on_error_setting());
  routes.marks_results = on_error == OnError::kPoison;
  if (device == inherited_on_) routes.nccl_communicator = std::move(inherited_nccl_);
  routes.publish_nccl = [name = communicator_->name(), device](nccl::Comm comm, bool exists) {
    publish_nccl(name, device, comm, exists);
  };
  auto group = std::make_shared<CudaGroup>(communicator_, operation, options_->timeout,
                                           options_->is_high_priority_stream, on_error, std::move(routes));
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

nccl::NcclComm& AlBackend::nccl_communicator() {
  for (const auto& group : cuda_groups()) {
    if (auto* found = group->nccl_communicator()) return *found;
  }
  throw Error(
      ErrorKind::kUnsupported,
      "altorch: group '" + communicator_->name() +
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

AlBackend::WorkPtr AlBackend::launch(c10d::OpType type, PreparedCall call, bool async) {
  if (call.operation.device == kHostDevice) return launch_on_host(type, std::move(call));
  const Operation operation = call.operation;
  try {
    const auto group = cuda_group(operation);
    if (const auto window = windows_.joinable(); window && (async || window->own)) {
      return c10::make_intrusive<KeptWork>(getRank(), type, operation.sequence,
                                           window->keep(std::move(call)));
    }
    const Tensors outputs = async ? Tensors() : call.outputs;
    std::vector<PreparedCall> calls;
    calls.push_back(std::move(call));
    auto work = group->launch(type, std::move(calls), async);
    return work ? work : finished(type, operation.sequence, outputs);
  } catch (const Error& error) {
    throw not_launched(operation, error);
  } catch (const c10::Error& error) {  // the peers may have enqueued it
    communicator_->give_up(operation, Error(ErrorKind::kTransport, error.what_without_backtrace()));
    throw;
  }
}

bool AlBackend::blocks(const PreparedCall& call, bool async) const {
  if (async || call.operation.device != kHostDevice) return false;
  const auto window = windows_.joinable();
  return !window || !window->own;
}

void AlBackend::load(PreparedCall& call) {
  try {
    for (Block& block : call.loads) block.load();
  } catch (const c10::Error& error) {
    communicator_->give_up(call.operation, Error(ErrorKind::kTransport, error.what_without_backtrace()));
    throw;
  }
  call.bind();
}

AlBackend::WorkPtr AlBackend::run(c10d::OpType type, PreparedCall& call, Communicator::Place& place) {
  bool buffers_free = true;
  try {
    place.run(buffers_free);
  } catch (...) {
    if (!buffers_free) AlWork::keep_for_ever({call.keep.begin(), call.keep.end()});
    throw;
  }
  for (const Block& block : call.stores) block.store();
  return finished(type, call.operation.sequence, call.outputs);
}

AlBackend::WorkPtr AlBackend::launch_on_host(c10d::OpType type, PreparedCall call) {
  load(call);
  const std::uint64_t sequence = call.operation.sequence;
  const auto window = windows_.joinable();
  const bool in_own = window && window->own;
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
  if (window) window->work->add_outputs(call.outputs);
  auto work =
      in_own ? window->work
             : c10::make_intrusive<AlWork>(getRank(), type, sequence, std::move(call.outputs), communicator_);
  work->add_task(task, {call.keep.begin(), call.keep.end()}, std::move(finish));
  if (window && !in_own) window->work->add_task(task, {}, nullptr);
  try {
    communicator_->submit(task);
  } catch (...) {
    work->abandon(*task);
    if (window && !in_own) window->work->abandon(*task);
    throw;
  }
  if (in_own) return nullptr;  // coalesce() gives the Work of all
  work->seal();
  return work;
}

AlBackend::WorkPtr AlBackend::finished(c10d::OpType type, std::uint64_t sequence,
                                       const Tensors& outputs) const {
  // torch keeps what it gets for wait_tensor() then.
  if (c10d::allow_inflight_collective_as_graph_input())
    return c10::make_intrusive<AlWork>(getRank(), type, sequence, outputs);
  return finished_;
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
  // As torch's own backends have it: a type that cannot be averaged is a wrong type, bits of floats a wrong
  // call.
  const auto kind = operation.op == ReduceOp::kAvg ? ErrorKind::kInvalidType : ErrorKind::kInvalidArgument;
  throw Error(kind, std::string(name_of(operation.op)) + " is not defined for " + name_of(operation.dtype) +
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
  const Membership& parent = communicator_->membership();
  Membership child;
  child.name = options && !options->group_name.empty() ? options->group_name
                                                       : parent.name + "/split" + std::to_string(split);
  child.rank = static_cast<int>(mine - ranks.begin());
  // Disjoint groups may be split off in one call.
  std::string key = parent.key + "/split" + std::to_string(split);
  for (const int rank : ranks) {
    check_rank(rank, "a member of the split");
    child.global_ranks.push_back(parent.global_ranks[static_cast<std::size_t>(rank)]);
    key += "." + std::to_string(rank);
  }
  const auto* asked = dynamic_cast<const AlOptions*>(options.get());
  const AlOptions& child_options = asked ? *asked : *options_;
  child.timeout = options ? options->timeout : options_->timeout;
  Rendezvous group(store, std::move(child), key, child_options);
  auto made = c10::make_intrusive<AlBackend>(group, transport_, child_options);
  split_nccl(made.get(), ranks.front(), group.group().rank, group.group().size());
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

std::shared_ptr<Communicator> AlBackend::make_carrier() {
  Membership carrier = communicator_->membership();
  carrier.name += " (host_staged)";
  carrier.timeout = options_->timeout;
  carrier.is_job = false;
  const std::string key = carrier.key + "/host_staged";
  const auto store = dynamic_cast<C10dStore&>(communicator_->store()).c10d();
  Rendezvous group(store, std::move(carrier), key, *options_);
  return join(group, *transport_);
}

}  // namespace altorch::backend
