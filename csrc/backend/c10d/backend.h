// SPDX-License-Identifier: BSD-3-Clause
// c10d::Backend over the engine: checks tensors, builds the Operation, hands it over, gives back a Work.
//
// The legacy names of the virtuals are overridden; newer torch versions forward their `*_single` names to
// them. Thread rules: any thread, as c10d asks.
#pragma once

#include <c10/util/SmallVector.h>

#include <functional>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend/c10d/coalescing_window.h"
#include "backend/cuda/cuda_group.h"
#include "backend/recorder/group_trace.h"
#include "backend/c10d/one_sided.h"
#include "backend/c10d/options.h"
#include "backend/c10d/prepared_call.h"
#include "backend/store/rendezvous.h"
#include "backend/c10d/tensors.h"
#include "backend/hooks/torch_hooks.h"
#include "backend/recorder/torch_recorder.h"
#include "backend/c10d/work.h"
#include "rendezvous/survivors.h"
#include "transports/transport.h"

namespace altorch::backend {

struct SparseCall;

class AlBackend : public c10d::Backend {
 public:
  // Collective over the group, whose ranks have just met. Throws Error.
  AlBackend(Rendezvous& group, std::shared_ptr<Transport> transport, const AlOptions& options);
  ~AlBackend() override;
  // Weak pointers to a group put its end off; what it holds goes before that. For c10 alone.
  void release_resources() override;

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  const std::string getBackendName() const override { return "al"; }
  c10::intrusive_ptr<Options> getBackendOptions() override {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
    return options_;
#else
    return c10::make_intrusive<AlOptions>(*options_);  // split_group writes a child's settings into it
#endif
  }
  bool supportsSplitting() const override { return true; }
  // Over the Python side (altorch._survivors), which chooses what carries a group.
  bool supportsShrinking() const override { return true; }
  // Who is left, when something went wrong: ranks of the group; and then whether all of them have made what comes next.
  // Collective over them. `patience`: with a rank that lives and does not call it; then it is left out. `store`: which they
  // all reach; null: the one that the group was made over.
  Survivors find_survivors(std::chrono::milliseconds patience, const c10::intrusive_ptr<c10d::Store>& store);
  bool all_succeeded(std::chrono::milliseconds patience, const Survivors& left, bool made,
                     const c10::intrusive_ptr<c10d::Store>& store);
  // Whether a rank of the group is known to be dead, as far as this process sees it.
  bool is_lost(int rank) const;
  const Membership& membership() const { return communicator_->membership(); }
  // The group's keys, over the connection that it was made over.
  c10::intrusive_ptr<c10d::Store> callers_store() const;
  // What torch keeps of a window it keeps for all threads, and for ever where something was thrown in it: its
  // calls in between are lost. A batch of messages between CPUs needs no window, so none is offered there.
  bool supportsCoalescing() const override { return carries_cuda(); }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  // A group of `size` ranks that meet in `store`, from any groups of theirs; collective over those.
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                    const c10::intrusive_ptr<Options>& options, const int& rank,
                                    const int& size) override;
  // A group that was to be made, or why it was not.
  using Made = std::pair<c10::intrusive_ptr<AlBackend>, std::string>;
  // How merge() makes one, which is the Python side's to choose; of the process.
  using MergeMaker = std::function<Made(const c10::intrusive_ptr<c10d::Store>&, const Membership&,
                                        const c10::intrusive_ptr<AlOptions>&)>;
  static void set_merge_maker(MergeMaker maker);
  // With device_id: the group's share of the GPU is made at once instead of with the first tensor;
  // collective.
  void eagerConnectSingleDevice(at::Device device) override;
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = clamp_timeout(timeout); }
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override {
    hooks_->on_completion(std::move(hook));
    onCompletionHook_ = [](std::shared_ptr<c10d::WorkInfo>) {};  // torch looks whether there is one
  }
  void waitForPendingWorks() override { hooks_->completions().wait_for_pending(); }
  void enableCollectivesTiming() override {}  // every call is timed
#ifdef C10D_BACKEND_HAS_HOOKS
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) override { hooks_->extend(timeout); }
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override { hooks_->add(id, std::move(hook)); }
  void unregisterAbortHook(std::int64_t id) override { hooks_->remove(id); }
#endif
#ifdef ALTORCH_HAS_COMPLETION_HOOKS
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    hooks_->completion_hooks()->add(id, for_torch(std::move(hook)));
  }
  void unregisterCompletionHook(std::int64_t id) override { hooks_->completion_hooks()->remove(id); }
  // Those of several groups, before the first call.
  void share(std::shared_ptr<CompletionHooks> hooks) { hooks_->share(std::move(hooks)); }
#endif
  void setSequenceNumberForGroup() override {}  // every rank counts from 0
  std::uint64_t getSequenceNumberForGroup() override { return communicator_->sequence(); }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  // Whether it takes calls.
  bool is_whole() const { return !communicator_->is_closing(); }
  // reconfigure() has replaced this group: calls under way fail, and peers do not wait for this rank. Idempotent.
  void close_for_reconfigure();

  // Of the memory that the group has taken on this rank's GPU; GpuRoutes says what is collective, docs/streams.md what users
  // are told. Virtuals of torch's from 2.12 on, hence no `override`.
  void suspend();  // NOLINT(modernize-use-override)
  void resume();   // NOLINT(modernize-use-override)
  // Bytes, by the names that torch gives NCCL's: suspend, suspended (0 or 1), persist, total; and host.
  std::unordered_map<std::string, std::uint64_t> getMemoryStats();  // NOLINT(modernize-use-override)

  // NCCL's communicator of this group. Throws where there is none, or not yet.
  std::shared_ptr<nccl::NcclComm> nccl_communicator();
  // Buffers that NCCL may prepare for: nccl::NcclComm::add_buffer().
  void add_buffer(std::uintptr_t address, std::size_t bytes, bool symmetric);
  void remove_buffer(std::uintptr_t address);
  int nccl_splits() const { return nccl_splits_; }

  // backend_coalescing.cpp
  void startCoalescing() override;
  // Something was thrown in this thread's window, if it has one: nothing that it kept is launched.
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

  // backend_norm.cpp. The sum of everybody's `part` and this rank's `residual`, and before it that divided by the root mean
  // square of each row, times `weight`. New tensors; the host goes on as after any synchronous call.
  std::pair<at::Tensor, at::Tensor> all_reduce_rms_norm(const at::Tensor& part, const at::Tensor& residual,
                                                        const std::optional<at::Tensor>& weight,
                                                        double epsilon);

  // backend_sparse.cpp. SUM of tensors in coordinates (COO). With CUDA tensors the call returns, asynchronous
  // or not, when all ranks have called.
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
  // Collective. Without a tensor, it has to be given one before it is used.
  c10::intrusive_ptr<AlWindow> open_window(const std::optional<at::Tensor>& tensor);

  std::vector<StatisticsRow> statistics() const { return communicator_->statistics().rows(); }
  const char* transport() const { return communicator_->transport(); }

 private:
  // Takes a sequence number, lets `fill` check the arguments and describe the call, and runs it. What `fill`
  // throws is told to the peers, who may already wait.
  template <typename Fill>
  WorkPtr issue(c10d::OpType type, OpKind kind, std::chrono::milliseconds timeout, bool async, Fill&& fill);
  // backend_launch.cpp
  // Whether the caller waits for the call on the host.
  bool blocks(const PreparedCall& call, bool async) const;
  void load(PreparedCall& call);
  WorkPtr run(c10d::OpType type, PreparedCall& call, Communicator::Place& place);
  // Any other.
  WorkPtr launch(c10d::OpType type, PreparedCall call, bool async);
  WorkPtr launch_on_host(c10d::OpType type, PreparedCall call);
  Error not_launched(const Operation& operation, const Error& error);
  // The group's links, opened together with the other ranks; one rank alone needs no transport.
  static std::shared_ptr<Communicator> join(Rendezvous& group, Transport& transport);
  // The group's share of a GPU; made, together with the other ranks, when the first tensor comes.
  std::shared_ptr<CudaGroup> cuda_group(const Operation& operation);
  std::vector<std::shared_ptr<CudaGroup>> cuda_groups();
  // What concerns the group's share of a GPU and is no call of anybody's.
  Operation about_gpu(int device) const;
  template <typename Body>
  void on_gpu_together(const char* what, Body&& body);
  // Numbers of calls that a device has. Does not wait.
  std::vector<std::uint64_t> calls_on_devices();
  c10::intrusive_ptr<Backend> make_split(const c10::intrusive_ptr<c10d::Store>& store,
                                         const std::vector<int>& ranks,
                                         const c10::intrusive_ptr<Options>& options);
  // What NCCL makes of this group's communicator for the ranks of a split; collective over this group.
  void split_nccl(AlBackend* child, int color, int key, int size);
  // This group once more, for what CUDA tensors need of the host.
  std::shared_ptr<Communicator> make_carrier();
  WorkPtr message(c10d::OpType type, OpKind kind, const at::Tensor& tensor, int peer, int tag);
  template <typename Ask>
  auto ask_survivors(std::chrono::milliseconds patience, const c10::intrusive_ptr<c10d::Store>& store,
                     Ask&& ask);
  WorkPtr allreduce_sparse_cuda(SparseCall& call, bool async);
  std::shared_ptr<Task> post(Operation operation, std::int64_t tag);
  std::chrono::milliseconds deadline(std::chrono::milliseconds timeout) const;
  void check_rank(std::int64_t rank, const char* what) const;
  static void set_reduction(Operation& operation, const c10d::ReduceOp& op, const at::Tensor& tensor);
  // Runs `count` operations as one Work.
  template <typename Each>
  WorkPtr coalesce(std::size_t count, bool async, Each&& each);

  std::shared_ptr<CoalescingWindow> make_window(bool own);
  // The Work of what joined it, begun now.
  WorkPtr end_window(CoalescingWindow& window);
  // Of a window that torch will not end: what was begun goes on, what was kept is told that it never will.
  void give_up(CoalescingWindow& window, const std::string& why);
  // After a call that failed.
  void spoil_window() noexcept;
  // Runs `body`, a call that torch may have made within a window of its own.
  template <typename Body>
  WorkPtr called(Body&& body);
  // Of a synchronous call that is done, or is in order on the caller's stream.
  WorkPtr finished(c10d::OpType type, const Operation& operation, const Tensors& outputs) const;
  // The same, whoever looks. `source`: the rank that a message came from.
  WorkPtr done_work(c10d::OpType type, const Operation& operation, Tensors outputs, int source = -1) const;
  // Of tasks that it is yet to be given.
  c10::intrusive_ptr<AlWork> work_of_tasks(c10d::OpType type, std::uint64_t sequence, Tensors outputs,
                                           std::chrono::milliseconds timeout) const;

  const std::shared_ptr<Transport> transport_;
  std::shared_ptr<StoreLease> store_lease_;
  std::shared_ptr<Communicator> communicator_;
  const c10::intrusive_ptr<AlOptions> options_;
  const std::shared_ptr<TorchFlightLog> log_;  // null: nothing of ours
  const std::shared_ptr<TorchHooks> hooks_ = std::make_shared<TorchHooks>();
  std::unique_ptr<GroupTrace> trace_;
  // What a synchronous call gives where torch's recorder looks; else nothing, as a Work costs half a microsecond in Python.
  const c10::intrusive_ptr<AlWork> finished_;
  int splits_ = 0;
  c10::weak_intrusive_ptr<c10d::Store> last_split_store_{c10::intrusive_ptr<c10d::Store>()};
  c10::weak_intrusive_ptr<c10d::Backend> last_split_{c10::intrusive_ptr<c10d::Backend>()};
  c10::weak_intrusive_ptr<c10d::Store> last_merge_store_{c10::intrusive_ptr<c10d::Store>()};
  c10::weak_intrusive_ptr<c10d::Backend> last_merge_{c10::intrusive_ptr<c10d::Backend>()};
  std::mutex order_mutex_;  // from the number of a call to its place in the queue
  CoalescingWindows windows_;
  std::mutex cuda_mutex_;
  std::vector<std::shared_ptr<CudaGroup>> cuda_groups_;
  int inherited_on_ = kHostDevice;
  std::unique_ptr<nccl::NcclComm> inherited_nccl_;  // on that device
  int nccl_splits_ = 0;
};

}  // namespace altorch::backend
