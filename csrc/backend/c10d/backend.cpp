// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/backend.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backend/c10d/issue.h"
#include "backend/c10d/without_python.h"
#include "backend/cuda/cuda_watch.h"
#include "backend/cuda/publish_nccl.h"
#include "backend/store/group_making.h"
#include "base/leak_intentionally.h"
#include "reduction/exact_mode.h"
#include "runtime/progress.h"
#include "transports/loopback/channel.h"
#include "windows/windows.h"

namespace altorch::backend {
namespace {

// The caller may give the same options to several groups: a copy for this one.
c10::intrusive_ptr<AlOptions> own_options(const AlOptions& given, const Membership& group) {
  auto own = c10::make_intrusive<AlOptions>(given);
  own->timeout = group.timeout;
  own->group_name = group.name;
  own->exact |= exact_setting();
  return own;
}

}  // namespace

AlBackend::AlBackend(Rendezvous& group, std::shared_ptr<Transport> transport, const AlOptions& options)
    : Backend(group.group().rank, group.group().size()),
      transport_(std::move(transport)),
      store_lease_(group.lease()),
      communicator_(join(group, *transport_)),
      options_(own_options(options, group.group())),
      log_(TorchFlightLog::make(group.group().name, group.group().rank, group.group().global_ranks,
                                [this] { return getGroupDesc(); })),
      finished_(c10::make_intrusive<AlWork>(getRank(), c10d::OpType::UNKNOWN, 0, Tensors())) {
  if (log_) communicator_->add(log_);
  communicator_->add(hooks_);
  try {
    trace_ = std::make_unique<GroupTrace>(*communicator_, log_, [this] { return calls_on_devices(); });
  } catch (const Error& error) {  // other ranks may have their part already
    communicator_->close(
        std::string("it was not made on rank ") + std::to_string(getRank()) + ": " + error.what(),
        /*tell=*/true);
    throw;
  }
  group.is_made();
}

std::shared_ptr<Communicator> AlBackend::join(Rendezvous& group, Transport& transport) {
  const Membership& made = group.group();
  if (made.size() == 1) {  // it needs no transport
    return std::make_shared<Communicator>(
        made, std::make_unique<MessageLinks>("self", std::move(make_loopback_channels(1)[0])));
  }
  try {
    return std::make_shared<Communicator>(made, transport.open(made, group.store()));
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("altorch: ")) throw;
    throw error.with_prefix("altorch: group '" + made.name + "', rank " + std::to_string(made.rank) + ": ");
  }
}

// A group's end waits: for the device, for other ranks, for threads.
AlBackend::~AlBackend() {
  const WithoutPython released;
  AlBackend::release_resources();
}

void AlBackend::release_resources() {
  if (!communicator_) return;
  trace_.reset();
  end();
  if (!ProgressThread::usable()) {  // a forked child: what NCCL and the device have in flight is its parent's
    for (std::shared_ptr<CudaGroup>& group : cuda_groups_)
      leak_intentionally(std::make_unique<std::shared_ptr<CudaGroup>>(std::move(group)));
  }
  cuda_groups_.clear();
  // The communicator may have other owners, and so outlive the store.
  if (const JobWatch* watch = communicator_->watch()) watch->liveness.wait_until_reported();
  communicator_.reset();
  store_lease_.reset();
}

c10d::ErrorType AlBackend::getError() {
  const auto failure = communicator_->failure();
  return failure ? error_type(failure->kind()) : c10d::ErrorType::SUCCESS;
}

void AlBackend::abort() {
  hooks_->run_abort_hooks();
  if (const Membership& group = communicator_->membership(); group.is_job)
    GroupMaking::end_all(group.watch.get(), "another thread aborted the group of the job meanwhile");
  communicator_->close("the group was aborted", /*tell=*/true);
  for (const auto& group : cuda_groups()) group->abort("the group was aborted");
}

void AlBackend::close_for_reconfigure() {
  const bool failed = communicator_->failure().has_value();
  communicator_->close("the group was reconfigured", /*tell=*/true);
  if (!failed) return;  // GPUs have nothing to be freed from: their share ends with the group
  for (const auto& group : cuda_groups()) group->abort("the group was reconfigured");
}

void AlBackend::shutdown() {
  if (communicator_) communicator_->leave();
  end();
}

void AlBackend::end() {
  if (!communicator_) return;  // released
  transport_->group_ends(communicator_->membership());
  // Peers do not wait for a rank that has ended its group; but in a window they count on it without
  // a word.
  communicator_->close("the group was destroyed", /*tell=*/Windows::of(*communicator_).any());
  Windows::of(*communicator_).release();
}

std::chrono::milliseconds AlBackend::deadline(std::chrono::milliseconds timeout) const {
  return clamp_timeout(clamp_timeout(timeout.count() > 0 ? timeout : options_->timeout) +
                       hooks_->extension());
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

// Copies no shared_ptr: the last owner of a CudaGroup waits for the device in its destructor, and a
// thread that only reports must not wait.
std::vector<std::uint64_t> AlBackend::calls_on_devices() {
  const std::unique_lock lock(cuda_mutex_, std::try_to_lock);
  std::vector<std::uint64_t> numbers;
  if (!lock) return numbers;  // another thread looks, or a group on a GPU has just been made
  for (const auto& group : cuda_groups_) {
    const auto more = group->under_way();
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  return numbers;
}

// `operation`: one that needs it; its ranks may have to come together first.
std::shared_ptr<CudaGroup> AlBackend::cuda_group(const Operation& operation) {
  const int device = operation.device;
  const auto made = [&]() -> std::shared_ptr<CudaGroup> {
    const std::lock_guard lock(cuda_mutex_);
    if (cuda_groups_.empty()) return nullptr;
    const auto& group = cuda_groups_.front();
    if (group->device().index() == device) return group;
    throw Error(ErrorKind::kInvalidArgument, "the tensors are on cuda:" + std::to_string(device) +
                                                 ", and this rank's part of the group is on " +
                                                 group->device().str() +
                                                 "; use one GPU per rank (torch.cuda.set_device)");
  };
  if (auto group = made()) return group;
  const std::lock_guard making(making_mutex_);
  if (auto group = made()) return group;
  GpuRouteOptions routes;
  routes.make_carrier = [this](const std::vector<int>& ranks) { return make_carrier(ranks); };
  routes.nccl = options_->nccl;
  const OnError on_error = options_->on_error.value_or(on_error_setting());
  routes.marks_results = on_error == OnError::kPoison;
  if (device == inherited_on_) routes.nccl_communicator = std::move(inherited_nccl_);
  routes.publish_nccl = [name = communicator_->name(), device](nccl::Comm comm, bool exists) {
    publish_nccl(name, device, comm, exists);
  };
  auto group =
      make_watched<CudaGroup>(communicator_, operation, options_->timeout, options_->is_high_priority_stream,
                              on_error, std::move(routes), hooks_->completion_hooks());
  CudaWatch::instance().add(group);
  const std::lock_guard lock(cuda_mutex_);
  cuda_groups_.push_back(group);
  return group;
}

Operation AlBackend::about_gpu(int device) const {
  Operation usual;
  usual.kind = OpKind::kAllReduce;
  usual.dtype = DType::kFloat32;
  usual.count = 1;
  usual.device = device;
  usual.timeout = options_->timeout;
  return usual;
}

void AlBackend::eagerConnectSingleDevice(at::Device device) {
  if (!device.is_cuda()) return;
  const Operation usual = about_gpu(device.index());
  guarded([&] {
    try {
      cuda_group(usual)->connect(usual);
    } catch (const Error& error) {
      throw communicator_->explain(usual, error);
    }
  });
}

// Where there is no share of a GPU yet, on any rank, there is nothing to do. All ranks are told
// alike that it cannot be; after anything else they may differ in what they have.
template <typename Body>
void AlBackend::on_gpu_together(const char* what, Body&& body) {
  const std::string own = "altorch: group '" + communicator_->name() + "', rank " + std::to_string(getRank());
  const auto abort = [&](const std::string& why) {
    communicator_->close(std::string(what) + " failed on rank " + std::to_string(getRank()) + " (" + why +
                             "); destroy the group and make a new one",
                         /*tell=*/true);
  };
  guarded([&] {
    communicator_->check_open();
    for (const auto& group : cuda_groups()) {
      try {
        body(*group, about_gpu(group->device().index()));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kUnsupported) abort(error.what());
        throw Error(error.kind(), own + ": " + what + ": " + error.what());
      } catch (const c10::Error& error) {
        abort(error.what_without_backtrace());
        throw;
      }
    }
  });
}

void AlBackend::suspend() {
  on_gpu_together("suspend()", [](CudaGroup& group, const Operation& call) { group.suspend(call); });
}

void AlBackend::resume() {
  on_gpu_together("resume()", [](CudaGroup& group, const Operation& call) { group.resume(call); });
}

std::unordered_map<std::string, std::uint64_t> AlBackend::getMemoryStats() {
  GpuRoutes::Memory all;
  for (const auto& group : cuda_groups()) all = group->memory();  // there is one at most
  return {{"suspend", all.suspendable},
          {"suspended", all.suspended ? 1 : 0},
          {"persist", all.persistent},
          {"total", all.suspendable + all.persistent},
          {"host", all.on_host}};
}

std::shared_ptr<nccl::NcclComm> AlBackend::nccl_communicator() {
  for (const auto& group : cuda_groups()) {
    if (auto found = group->nccl_communicator()) return found;
  }
  throw Error(
      ErrorKind::kUnsupported,
      "altorch: group '" + communicator_->name() +
          "' has no NCCL communicator yet; give init_process_group a device_id, or run an operation on "
          "a CUDA tensor first (`altorch explain --device cuda` says when NCCL carries it)");
}

// A rank alone has no communicator, and moves nothing that it would help to register.
void AlBackend::add_buffer(std::uintptr_t address, std::size_t bytes, bool symmetric) {
  if (getSize() == 1) return;
  guarded([&] { nccl_communicator()->add_buffer(reinterpret_cast<void*>(address), bytes, symmetric); });
}

void AlBackend::remove_buffer(std::uintptr_t address) {
  if (getSize() == 1) return;
  guarded([&] { nccl_communicator()->remove_buffer(reinterpret_cast<void*>(address)); });
}

}  // namespace altorch::backend
