// SPDX-License-Identifier: BSD-3-Clause
// The route for ranks whose GPUs can map each other's memory: each rank writes into the memory of
// its peers, and reads its own. Operations run on the GPU without the host, so that they can be
// captured into CUDA graphs. Reductions combine the values of the ranks in the order of the ranks,
// for every size and position.
#pragma once

#include <memory>
#include <vector>

#include "base/abort_note.h"
#include "gpu/gpu_route.h"
#include "gpu/host_staged/messages.h"
#include "gpu/host_staged/side_streams.h"
#include "gpu/ll_exchanges.h"
#include "gpu/peer/layout.h"
#include "gpu/peer/normed_sums.h"
#include "gpu/peer/protocols.h"
#include "select/rules.h"

namespace altorch {

class PeerRoute : public GpuRoute {
 public:
  struct Memory {
    PinnedMemory note;             // an AbortNote that all ranks map
    std::vector<DeviceMemory> of;  // by rank, each as layout says
  };

  PeerRoute(std::unique_ptr<Device> device, Memory memory, const PeerLayout& layout, int rank,
            Rules rules = Rules());

  const char* name() const override { return "peer"; }
  void enqueue(std::span<const Operation> operations, Stream stream) override;
  bool marks_results() const override { return true; }
  bool does_norm_of(const Operation& operation) const override {
    return protocol_for(operation).id == PeerProtocolId::kNorm;
  }
  const std::uint32_t* abort_flag() const override { return &note().aborted; }
  LlExchanges* ll_exchanges() override { return &ll_; }
  std::optional<Error> failure() override;
  void abort(const std::string& why) override { note().write(why); }
  Held holds() override { return {.on_gpu = layout_.bytes()}; }

 private:
  AbortNote& note() const { return *reinterpret_cast<AbortNote*>(memory_.note.get()); }
  template <class Fold>
  void describe(Fold& job, const Operation& operation) const;
  const PeerProtocol& protocol_for(const Operation& operation) const;
  void reduce_by_ll128(const Operation& operation, bool two_shot, Stream stream);
  void reduce_one_shot(const Operation& operation, Stream stream);
  void split_for_two_shot(Ll128Reduce& job, const Operation& operation) const;
  void reduce_two_shot(const Operation& operation, Stream stream);
  void move(const Operation& operation, PeerProtocolId protocol, Stream stream);
  void move_by_ll128(Exchange& job, PeerProtocolId protocol, Stream stream);
  void run(const Exchange& job, Stream stream);
  // How many blocks of an LL128 kernel move `bytes` bytes.
  static int ll128_blocks_for(std::int64_t bytes, int most);
  Ll128Slots ll128_slots() const;
  // Exchanges the messages of one coalescing window. A kernel carries at most one message for each
  // peer and direction. If a peer has more, further kernels carry them in order, the sends on one
  // stream and the receives on another.
  void exchange(std::vector<BlockMessage>& messages, Stream stream);
  BulkSlots slots(std::size_t data, std::size_t end, int blocks, int first_flag, int first_number) const;
  // To and from a rank, this one too.
  void add_sent(Exchange& job, int peer, const void* data, std::int64_t bytes) const;
  void add_taken(Exchange& job, int peer, void* data, std::int64_t bytes, std::uint64_t poison) const;
  LlExchanges::Slots ll_slots() const;
  NormedSums::Slots norm_slots() const;
  std::uint64_t* words(int owner, int source, std::size_t offset) const;
  std::byte* region(int owner, int source) const;

  const std::unique_ptr<Device> device_;
  const Memory memory_;
  const PeerLayout layout_;
  const int rank_;
  const Rules rules_;
  LlExchanges ll_;
  NormedSums norms_;
  // The counters of rounds of all protocols but LL128, and this rank's one-shot flags to itself.
  const DeviceMemory numbers_;
  BulkSlots two_shot_, one_shot_, exchange_, messages_;
  const DeviceMemory ll128_numbers_;  // null: LL128 is not used
  Ll128Slots ll128_;
  SideStreams sides_;
};

}  // namespace altorch
