// SPDX-License-Identifier: BSD-3-Clause
// c10d::Backend over the engine: checks tensors, builds the Operation, hands it over, gives back a
// Work.
//
// The legacy names of the virtuals are overridden; newer torch versions forward their `*_single`
// names to them. Thread rules: any thread, as c10d asks.
#pragma once

#include <c10/util/SmallVector.h>

#include <array>
#include <functional>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend/c10d/coalescing_window.h"
#include "backend/c10d/one_sided.h"
#include "backend/c10d/options.h"
#include "backend/c10d/prepared_call.h"
#include "backend/c10d/tensors.h"
#include "backend/c10d/time_estimate.h"
#include "backend/c10d/work.h"
#include "backend/cuda/cuda_group.h"
#include "backend/hooks/torch_hooks.h"
#include "backend/recorder/group_trace.h"
#include "backend/recorder/torch_recorder.h"
#include "backend/store/rendezvous.h"
#include "rendezvous/survivors.h"
#include "transports/transport.h"

namespace altorch::backend {

struct SparseCall;

class AlBackend : public c10d::Backend {
 public:
  // Collective over the group. Its ranks have just completed the rendezvous. Throws Error.
  AlBackend(Rendezvous& group, std::shared_ptr<Transport> transport, const AlOptions& options);
  ~AlBackend() override;
  // Releases what the group holds. c10 calls it when the last strong reference goes while weak
  // pointers remain, because those delay the destructor. Only c10 and the destructor call it.
  void release_resources() override;

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  const std::string getBackendName() const override { return options_->served_name; }
  c10::intrusive_ptr<Options> getBackendOptions() override {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
    return options_;
#else
    return c10::make_intrusive<AlOptions>(*options_);  // split_group writes a child's settings into it
#endif
  }
  bool supportsSplitting() const override { return true; }
  // altorch._survivors implements it in Python, where the transport of a group is chosen.
  bool supportsShrinking() const override { return true; }
  // Survivor agreement after a failure (rendezvous/survivors.h): which ranks of the group survive,
  // and then whether all of them have made the next group. Collective over the survivors. A live
  // rank that does not call it within `timeout` is left out. `store`: one that all survivors
  // reach; null: the store that the group was made over.
  Survivors find_survivors(std::chrono::milliseconds timeout, const c10::intrusive_ptr<c10d::Store>& store);
  bool all_succeeded(std::chrono::milliseconds timeout, const Survivors& left, bool made,
                     const c10::intrusive_ptr<c10d::Store>& store);
  // Whether this process knows that a rank of the group is dead.
  bool is_lost(int rank) const;
  const Membership& membership() const { return communicator_->membership(); }
  // The group's keys in the store, over the connection that the group was made over.
  c10::intrusive_ptr<c10d::Store> callers_store() const;
  // torch keeps the state of a coalescing window for all threads. If an exception leaves a window
  // open, torch keeps that state for ever, and the calls made meanwhile are lost. A batch of
  // messages between CPUs needs no window, so none is offered there.
  bool supportsCoalescing() const override { return carries_cuda(); }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  // Makes a group of `size` ranks that meet in `store`; they may come from different groups.
  // Collective over these ranks.
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                    const c10::intrusive_ptr<Options>& options, const int& rank,
                                    const int& size) override;
  // A new group; or null, and the reason why it was not made.
  using Made = std::pair<c10::intrusive_ptr<AlBackend>, std::string>;
  // Makes the group for merge(). Python sets it, once for the process.
  using MergeMaker = std::function<Made(const c10::intrusive_ptr<c10d::Store>&, const Membership&,
                                        const c10::intrusive_ptr<AlOptions>&)>;
  static void set_merge_maker(MergeMaker maker);
  // torch calls it for a group with a device_id: makes the group's state on the GPU at once,
  // instead of with the first tensor. Collective.
  void eagerConnectSingleDevice(at::Device device) override;
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = clamp_timeout(timeout); }
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override {
    hooks_->on_completion(std::move(hook));
    onCompletionHook_ = [](std::shared_ptr<c10d::WorkInfo>) {};  // torch looks whether there is one
  }
  void waitForPendingWorks() override { hooks_->completions().wait_for_pending(); }
  void enableCollectivesTiming() override {}  // every call is timed
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  // torch.distributed._time_estimator, and inductor's overlap passes: see docs/tuning.md.
  bool supportsTimeEstimation() const override { return true; }
  void startTimeEstimate() override;
  float endTimeEstimate() override;
#endif
#ifdef C10D_BACKEND_HAS_HOOKS
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) override { hooks_->extend(timeout); }
  bool supportsAbortHooks() const { return true; }  // NOLINT(modernize-use-override): torch 2.14 does not ask
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override { hooks_->add(id, std::move(hook)); }
  void unregisterAbortHook(std::int64_t id) override { hooks_->remove(id); }
#endif
#ifdef ALTORCH_HAS_COMPLETION_HOOKS
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    hooks_->completion_hooks()->add(id, for_torch(std::move(hook)));
  }
  void unregisterCompletionHook(std::int64_t id) override { hooks_->completion_hooks()->remove(id); }
  // Uses these completion hooks, which several groups share. To be called before the first call of
  // the group.
  void share(std::shared_ptr<CompletionHooks> hooks) { hooks_->share(std::move(hooks)); }
#endif
  void setSequenceNumberForGroup() override {}  // every rank counts from 0
  std::uint64_t getSequenceNumberForGroup() override { return communicator_->count_calls(); }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  // Whether it takes calls.
  bool is_whole() const { return !communicator_->is_closing(); }
  // reconfigure() has replaced this group: calls under way fail, and peers do not wait for this
  // rank. Idempotent.
  void close_for_reconfigure();
  // For a group that the program drops without destroy_process_group(), perhaps after an exception.
  // Unlike shutdown(), it does not publish what this rank has finished. Idempotent.
  void end();

  // Release the memory that the group has taken on this rank's GPU, and take it back. GpuRoutes
  // says which of it is collective, docs/streams.md what users are told. torch declares these
  // virtuals from 2.12 on, hence no `override`.
  void suspend();  // NOLINT(modernize-use-override)
  void resume();   // NOLINT(modernize-use-override)
  // Bytes, under torch's names for NCCL's statistics: suspend, suspended (0 or 1), persist, total.
  // `host` is added.
  std::unordered_map<std::string, std::uint64_t> getMemoryStats();  // NOLINT(modernize-use-override)

  // NCCL's communicator of this group. Throws where there is none, or not yet.
  std::shared_ptr<nccl::NcclComm> nccl_communicator();
  // Registers a buffer with NCCL: see nccl::NcclComm::add_buffer().
  void add_buffer(std::uintptr_t address, std::size_t bytes, bool symmetric);
  void remove_buffer(std::uintptr_t address);
  int nccl_splits() const { return nccl_splits_; }

  // backend_coalescing.cpp
  void startCoalescing() override;
  // An exception was thrown in this thread's coalescing window, if it has one: the calls that the
  // window kept are never launched.
  void abandon_window() { spoil_window(); }
  WorkPtr endCoalescing() override;

  // backend_reduce.cpp
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_by_way_of(const at::Tensor& copy, const Tensors& tensors,
                              const c10d::AllreduceOptions& options);
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;

  // backend_reduce.cpp. MPI_Scan, or MPI_Exscan (`exclusive`; rank 0 gets its own numbers), as a
  // new tensor. `op`: a ReduceOp of torch's but AVG and PREMUL_SUM. The host goes on as after any
  // synchronous call.
  at::Tensor scan(const at::Tensor& tensor, int op, bool exclusive);

  // backend_norm.cpp. Returns two new tensors. The second is the sum of `part` over all ranks, plus
  // this rank's `residual`. The first is the second with each row divided by its root mean square,
  // times `weight`. The host goes on as after any synchronous call.
  std::pair<at::Tensor, at::Tensor> all_reduce_rms_norm(const at::Tensor& part, const at::Tensor& residual,
                                                        const std::optional<at::Tensor>& weight,
                                                        double epsilon);

  // backend_quantized.cpp. A new tensor: the sum, or mean, of values that travel in 8 bits. None:
  // no kernel of this group does it. Collective over the group either way. `tensor`: float16,
  // bfloat16 or float32. The host goes on as after any synchronous call.
  std::optional<at::Tensor> all_reduce_quantized(const at::Tensor& tensor, bool float8, bool mean);

  // backend_sparse.cpp. SUM of tensors in coordinates (COO). With CUDA tensors the call returns,
  // asynchronous or not, when all ranks have called.
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;

  // backend_move.cpp
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
#endif
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;

  // backend_objects.cpp. Moves bytes of the host, for altorch.objects, and returns when it is done
  // on this rank. `counts`: of an all_gather or gather, the bytes of each rank, the same on all
  // ranks; they lie one behind the other in `output`. A scatter has equal parts. A broadcast has
  // only `output`.
  void move_bytes(OpKind kind, int root, const at::Tensor& input, const at::Tensor& output,
                  const std::vector<std::int64_t>& counts);
  // A message that users' messages never match.
  WorkPtr send_bytes(const at::Tensor& bytes, int peer);
  WorkPtr receive_bytes(const at::Tensor& bytes, int peer);

  // backend_message.cpp
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // backend_one_sided.cpp
#ifdef C10D_BACKEND_HAS_WINDOW
  bool supportsWindow() const override { return true; }
  c10::intrusive_ptr<c10d::Window> new_window(
      const std::optional<at::Tensor>& tensor = std::nullopt) override;
#endif
  // Collective. A window without a tensor must be given one before it is used.
  c10::intrusive_ptr<AlWindow> open_window(const std::optional<at::Tensor>& tensor);

  std::vector<StatisticsRow> statistics() const { return communicator_->statistics().rows(); }
  const char* transport() const { return communicator_->transport(); }

 private:
  // Takes a sequence number, lets `fill` check the arguments and describe the call, and runs it.
  // What `fill` throws is reported to the peers, because they may already wait in the call.
  // `device`: where the tensors are (cuda_device_of()), before they are checked. A barrier gives a
  // GPU if it has a place in both orders.
  // While a time estimate of this thread is under way, the call is estimated and not run.
  template <typename Fill>
  WorkPtr issue(c10d::OpType type, OpKind kind, int device, std::chrono::milliseconds timeout, bool async,
                Fill&& fill);
  std::mutex& order_mutex(int device) { return order_mutexes_[device != kHostDevice]; }
  // backend_launch.cpp
  // Adds a call to the time estimate; it is not run.
  WorkPtr estimate(c10d::OpType type, const PreparedCall& call);
  // Throws where a time estimate of this thread is under way, which takes collectives only.
  void refuse_in_estimate(const char* what) const;
  // Whether the caller waits for the call on the host.
  bool blocks(const PreparedCall& call, bool async) const;
  void load(PreparedCall& call);
  WorkPtr run(c10d::OpType type, PreparedCall& call, Communicator::Place& place);
  // Runs a call for which blocks() is false.
  WorkPtr launch(c10d::OpType type, PreparedCall call, bool async);
  WorkPtr launch_on_host(c10d::OpType type, PreparedCall call);
  Error not_launched(const Operation& operation, const Error& error);
  // Opens the group's links; collective. A group of one rank needs no transport.
  static std::shared_ptr<Communicator> join(Rendezvous& group, Transport& transport);
  // Returns the group's state on a GPU. The first tensor on a GPU makes it, which is collective.
  std::shared_ptr<CudaGroup> cuda_group(const Operation& operation);
  std::vector<std::shared_ptr<CudaGroup>> cuda_groups();
  // An Operation that stands for work on the group's state on a GPU, and for no call of the
  // program.
  Operation about_gpu(int device) const;
  template <typename Body>
  void on_gpu_together(const char* what, Body&& body);
  // The numbers of the calls that a device is not known to have finished. Does not wait.
  std::vector<std::uint64_t> calls_on_devices();
  c10::intrusive_ptr<Backend> make_split(const c10::intrusive_ptr<c10d::Store>& store,
                                         const std::vector<int>& ranks,
                                         const c10::intrusive_ptr<Options>& options);
  // Splits this group's NCCL communicator for the ranks of a split. Collective over this group.
  void split_nccl(AlBackend* child, int color, int key, int size);
  // Makes a further communicator of these ranks, ascending, for the host's part of calls on CUDA
  // tensors. Collective over them.
  std::shared_ptr<Communicator> make_carrier(const std::vector<int>& ranks);
  // `access`: what the message is of, a literal, if no user sends it: its tag is then one that
  // users cannot give.
  WorkPtr message(c10d::OpType type, OpKind kind, const at::Tensor& tensor, int peer, std::int64_t tag,
                  const char* access = "");
  template <typename Ask>
  auto ask_survivors(std::chrono::milliseconds timeout, const c10::intrusive_ptr<c10d::Store>& store,
                     Ask&& ask);
  WorkPtr allreduce_sparse_cuda(SparseCall& call, bool async);
  std::shared_ptr<Task> post(Operation operation, std::int64_t tag);
  std::chrono::milliseconds deadline(std::chrono::milliseconds timeout) const;
  void check_rank(std::int64_t rank, const char* what) const;
  void set_reduction(Operation& operation, const c10d::ReduceOp& op, const at::Tensor& tensor) const;
  // Whether SUM and AVG of floating types are exact (reduction/exact_mode.h).
  bool has_exact_sums() const { return options_->exact; }
  // Whether this thread's *_coalesced call stands for a call in the profiler, too (only where
  // altorch serves a name).
  bool is_part() const {
    const auto window = options_->serves_a_name() ? windows_.joinable() : nullptr;
    return window && window->own;
  }
  // Runs one operation for each of `tensors` as one Work.
  template <typename Each>
  WorkPtr coalesce(OpKind kind, const Tensors& tensors, bool async, Each&& each);

  std::shared_ptr<CoalescingWindow> make_window(bool own);
  // Launches the calls that the window kept, and returns the Work of all that joined it.
  WorkPtr end_window(CoalescingWindow& window);
  // For a window that torch will not end: calls in flight go on, and calls that it kept are
  // refused.
  void abort_window(CoalescingWindow& window, const std::string& why);
  // Called after a call that failed: marks this thread's window as broken, if torch opened it.
  void spoil_window() noexcept;
  // Runs `body`, a call that torch may have made within a window of its own.
  template <typename Body>
  WorkPtr called(Body&& body);
  // The Work of a synchronous call that is done, or is in order on the caller's stream. Null where
  // torch does not look at it.
  WorkPtr finished(c10d::OpType type, const Operation& operation, const Tensors& outputs) const;
  // The same, but never null. `source`: the rank that a message came from.
  WorkPtr done_work(c10d::OpType type, const Operation& operation, Tensors outputs, int source = -1) const;
  // A Work without tasks, which the caller adds.
  c10::intrusive_ptr<AlWork> work_of_tasks(c10d::OpType type, std::uint64_t sequence, Tensors outputs,
                                           std::chrono::milliseconds timeout) const;

  const std::shared_ptr<Transport> transport_;
  std::shared_ptr<StoreLease> store_lease_;
  std::shared_ptr<Communicator> communicator_;
  const c10::intrusive_ptr<AlOptions> options_;
  const std::shared_ptr<TorchFlightLog> log_;  // null: altorch does not record the group's calls
  const std::shared_ptr<TorchHooks> hooks_ = std::make_shared<TorchHooks>();
  std::unique_ptr<GroupTrace> trace_;
  // What finished() returns where torch's recorder needs a Work. Elsewhere finished() returns null,
  // because a Work costs half a microsecond in Python.
  const c10::intrusive_ptr<AlWork> finished_;
  int splits_ = 0;
  c10::weak_intrusive_ptr<c10d::Store> last_split_store_{c10::intrusive_ptr<c10d::Store>()};
  c10::weak_intrusive_ptr<c10d::Backend> last_split_{c10::intrusive_ptr<c10d::Backend>()};
  c10::weak_intrusive_ptr<c10d::Store> last_merge_store_{c10::intrusive_ptr<c10d::Store>()};
  c10::weak_intrusive_ptr<c10d::Backend> last_merge_{c10::intrusive_ptr<c10d::Backend>()};
  // Held from taking a call's number to taking its place in the queue: of calls on CPU tensors, on
  // CUDA tensors.
  std::array<std::mutex, 2> order_mutexes_;
  CoalescingWindows windows_;
  TimeEstimate estimate_;
  std::mutex making_mutex_;  // held while a group on a GPU is made, which is collective; before cuda_mutex_
  std::mutex cuda_mutex_;
  std::vector<std::shared_ptr<CudaGroup>> cuda_groups_;
  int inherited_on_ = kHostDevice;
  std::unique_ptr<nccl::NcclComm> inherited_nccl_;  // on that device
  int nccl_splits_ = 0;
};

}  // namespace altorch::backend
