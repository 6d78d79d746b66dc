// Operations on device memory among ranks whose GPUs can map each other's memory: every rank writes into the
// others', and reads its own. One kernel each, and nothing of it on the host, so that all of it can be captured
// into graphs. What is reduced is reduced in the order of the ranks, whatever its size and place.
#pragma once

#include <memory>
#include <vector>

#include "common/abort_note.h"
#include "engine/gpu_route.h"
#include "engine/peer/layout.h"
#include "engine/small_exchanges.h"

namespace altorch {

class PeerRoute : public GpuRoute {
 public:
  struct Memory {
    PinnedMemory note;             // an AbortNote that all ranks map
    std::vector<DeviceMemory> of;  // by rank, each as layout says
  };

  PeerRoute(std::unique_ptr<Device> device, Memory memory, const PeerLayout& layout, int rank);

  const char* name() const override { return "peer"; }
  void enqueue(std::span<const Operation> operations, Stream stream) override;
  bool marks_results() const override { return true; }
  SmallExchanges* small_exchanges() override { return &small_; }
  std::optional<Error> failure() override;
  void abort(const std::string& why) override { note().write(why); }

 private:
  AbortNote& note() const { return *reinterpret_cast<AbortNote*>(memory_.note.get()); }
  // Returns whether it marks its result itself.
  bool enqueue_one(const Operation& operation, Stream stream);
  void reduce(const Operation& operation, Stream stream);
  void move(const Operation& operation, Stream stream);
  BulkPlaces places(std::size_t data, int blocks, int first_flag, int first_number) const;
  SmallExchanges::Places small_places() const;
  std::byte* region(int owner, int source) const;

  const std::unique_ptr<Device> device_;
  const Memory memory_;
  const PeerLayout layout_;
  const int rank_;
  SmallExchanges small_;
  const DeviceMemory numbers_;  // of rounds: of reductions by block, then of moves by rank and block
  BulkPlaces reductions_, moves_;
};

}  // namespace altorch
