// SPDX-License-Identifier: BSD-3-Clause
// Carries operations on device memory through the host. Pieces go down into pinned memory, then to
// the other ranks as operations of a group on host memory, over any transport, and up again. These
// stages overlap. The route needs neither NCCL nor peer access nor a GPU per rank.
//
//   GPU, down:  wait(slot free) copy  raise(filled)
//   host:                                      gate(filled) operation raise(carried)
//   GPU, up:                                                               wait(carried) copy raise(free)
//
// All stages are enqueued at once, and flags in pinned memory hand a piece from one stage to the
// next. The host part is a task of the carrier group behind a gate, so the engine takes care of
// order, deadlines, mismatches and dead peers. A task that fails raises its flags all the same, so
// that no stream is left waiting.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "gpu/gpu_route.h"
#include "gpu/host_staged/handover.h"
#include "gpu/host_staged/messages.h"
#include "gpu/host_staged/pieces.h"
#include "gpu/host_staged/ring.h"
#include "gpu/host_staged/side_streams.h"
#include "runtime/communicator.h"

namespace altorch {

struct HostRelayOptions {
  std::size_t pinned_bytes = 64 << 20;   // in all
  std::size_t slots = 4;                 // of each of its two rings
  std::chrono::milliseconds timeout{0};  // of the allgather through the store
  bool marks = true;                     // large results of aborted calls, which needs kernels
  KeyValueStore* store = nullptr;        // null: the carrier's
  std::function<void(const std::string& why)> on_failure = {};  // GpuRouteOptions::on_relay_failure
};

class HostRelay : public GpuRoute {
 public:
  // Collective. `carrier`: a group of the same ranks, which only this route uses. Throws
  // Error(kUnsupported) without pinned memory, and Error(kTimeout) if a rank is missing.
  HostRelay(std::unique_ptr<Device> device, std::shared_ptr<Communicator> carrier,
            const HostRelayOptions& options);
  // The bytes of one slot, if enough pinned memory is available.
  static std::size_t piece_bytes(std::size_t pinned_bytes, std::size_t slots);

  // Elements of a vector, or of each block, in one piece; the same on every rank.
  static std::int64_t step_of(const Operation& operation, int size, std::size_t piece_bytes);

  // Waits, for a limited time, until the peers have received what this rank has sent.
  ~HostRelay() override;

  const char* name() const override { return "host_relay"; }
  void enqueue(std::span<const Operation> operations, Stream stream) override;
  bool marks_results() const override { return marks_; }
  std::optional<Error> failure() override;
  void abort(const std::string& why) override;
  Held holds() override { return {.on_host = 2 * Ring::bytes(pool_.slot_bytes, down_.slots())}; }
  bool takes_gpu_memory() const override { return false; }

 private:
  // What tasks in flight need. They share it with this route, and may outlive the route.
  struct Outcome {
    std::atomic<int> pending{0};  // tasks
    std::function<void(const std::string& why)> on_failure;
    std::mutex mutex;  // guards failure
    std::optional<Error> failure;
    PinnedMemory aborted;  // abort flag, set before the streams of a failed task go on
  };

  struct Pool {
    std::size_t slot_bytes;
    PinnedMemory down, up;
  };
  static Pool make_pool(Device& device, const HostRelayOptions& options);

  // True: the host marks the result if the call is aborted. False: a kernel has to.
  bool collective(const Operation& operation, Stream stream);
  bool exchange(std::vector<BlockMessage>& messages, Stream stream);
  void send(const BlockMessage& part, Stream stream);
  void receive(const BlockMessage& part, bool hands_over, Stream stream);
  // A task that hands over its results and raises `flag` when it ends, also if it fails.
  std::shared_ptr<Task> task_of(const Operation& operation, const Gate& gate, Flag& flag, std::uint32_t round,
                                const PinnedMemory& memory, Handover results = {});
  void wait_for(const Gate& gate, Stream stream);

  const std::unique_ptr<Device> device_;
  const std::shared_ptr<Communicator> carrier_;
  const Pool pool_;
  const std::size_t piece_bytes_;
  const bool marks_;
  Ring down_, up_;  // sent messages; collectives and received messages
  SideStreams sides_;
  const std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  Piece piece_;
  std::vector<const Operation*> unmarked_;  // operations of enqueue() that the host does not mark
};

}  // namespace altorch
