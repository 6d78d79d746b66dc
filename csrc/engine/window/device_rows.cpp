// The ways to memory on the GPUs of other ranks.
#include <array>
#include <vector>

#include "common/rounding.h"
#include "engine/window/device_opening.h"
#include "transports/shm/shareable.h"
#include "transports/shm/shared_memory.h"

namespace altorch {
namespace {

std::string obstacle_to_mapping(const GpuSource& gpus, int device) {
  const std::string found = device_obstacle(gpus, device);
  return found.empty() ? gpus.export_obstacle(device).value_or("") : found;
}

class PeerOpening : private DeviceOpening {
 public:
  explicit PeerOpening(const WindowOpening& opening) : DeviceOpening(opening) {}

  std::unique_ptr<RemoteMemory> open(std::string& why_not) {
    shareable_ = find_shareable(opening_.memory, opening_.own.bytes);
    std::string obstacle = obstacle_to_mapping(gpu_.gpus, gpu_.device);
    if (obstacle.empty() && !shareable_ && opening_.own.bytes > 0)
      obstacle =
          "the tensor was not made by altorch.empty(..., device='cuda'), so that no other rank can map it";
    MappedPart part;
    if (shareable_ && opening_.own.bytes > 0) part = {shareable_->bytes, shareable_->offset};
    if (!meet_others(obstacle, part, why_not)) return nullptr;
    DeviceWindow::Memory memory;
    Device::Exported signals;
    std::unique_ptr<RemoteMemory> made;
    const auto make_own = [&] {
      prepare(memory);
      signals = memory.device->export_memory(DeviceWindow::signal_bytes(size_));
      // A rank that has nothing passes on its signals once more, so that all take part alike.
      if (!shareable_) shareable_ = Shareable{Descriptor(dup(*signals.descriptor)), 0, 0};
    };
    const auto map_all = [&] {
      memory.board = share(*memory.device, "board", DeviceWindow::board_bytes(size_));
      memory.signals = exchange(
          "signals", *memory.device, signals.descriptor, signals.memory,
          [&](const DeviceCard&) { return std::pair(DeviceWindow::signal_bytes(size_), std::size_t{0}); });
      for (std::size_t rank = 0; rank < cards_.size(); ++rank) {
        if (!cards_[rank].shareable.holds(opening_.registered[rank].bytes)) throw outside(rank);
      }
      const DeviceMemory own(DeviceMemory(), opening_.memory);
      memory.of = exchange("memory", *memory.device, shareable_->descriptor, own, [](const DeviceCard& card) {
        return std::pair(card.shareable.bytes, card.shareable.offset);
      });
      made = std::make_unique<DeviceWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                            world_.kernels_meet(), atomics_obstacles());
    };
    if (!attempt("prepared", make_own, why_not) || !attempt("mapped", map_all, why_not)) return nullptr;
    return made;
  }

 private:
  // `part`: how much a rank gives, and where that begins which is wanted. Nothing stays null.
  template <class Part>
  std::vector<DeviceMemory> exchange(const std::string& key, Device& device, const Descriptor& descriptor,
                                     const DeviceMemory& own, const Part& part) {
    const auto descriptors =
        exchange_descriptors(opening_.store, key, rank_, size_, descriptor, opening_.timeout);
    std::vector<DeviceMemory> all;
    for (int other = 0; other < size_; ++other) {
      const auto at = static_cast<std::size_t>(other);
      const auto [bytes, offset] = part(cards_[at]);
      if (other == rank_ || bytes == 0) {
        all.push_back(other == rank_ ? own : nullptr);
        continue;
      }
      const DeviceMemory mapped = device.import_memory(descriptors[at], bytes);
      all.emplace_back(mapped, mapped.get() + offset);
    }
    return all;
  }

  std::vector<std::string> atomics_obstacles() const {
    std::vector<std::string> all;
    for (const DeviceCard& peer : cards_) {
      const auto found =
          gpu_.gpus.atomics_obstacle ? gpu_.gpus.atomics_obstacle(gpu_.device, peer.gpu.gpu) : std::nullopt;
      all.push_back(found.value_or(""));
    }
    return all;
  }

  std::optional<Shareable> shareable_;
};

// Nothing of another rank's is reached, but pinned memory.
class StagedOpening : private DeviceOpening {
 public:
  explicit StagedOpening(const WindowOpening& opening) : DeviceOpening(opening) {}

  std::unique_ptr<RemoteMemory> open(std::string& why_not) {
    if (!meet_others(device_obstacle(gpu_.gpus, gpu_.device), {}, why_not)) return nullptr;
    DeviceWindow::Memory memory;
    std::unique_ptr<RemoteMemory> made;
    const auto make_own = [&] {
      prepare(memory);
      memory.serving = gpu_.gpus.open_beside(gpu_.device);
    };
    const auto share_all = [&] {
      const std::size_t board = rounded_up(DeviceWindow::board_bytes(size_), sizeof(Flag));
      memory.board = share(*memory.device, "board", board + StagedBoard::bytes(size_));
      memory.staged = PinnedMemory(memory.board, memory.board.get() + board);
      memory.of.resize(cards_.size());
      memory.of[static_cast<std::size_t>(rank_)] = DeviceMemory(DeviceMemory(), opening_.memory);
      made = std::make_unique<DeviceWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                            /*kernels_meet=*/false, std::vector<std::string>(cards_.size()));
    };
    if (!attempt("prepared", make_own, why_not) || !attempt("shared", share_all, why_not)) return nullptr;
    return made;
  }
};

template <class Opening>
std::unique_ptr<RemoteMemory> open(const WindowOpening& opening, std::string& why_not) {
  why_not.clear();
  return Opening(opening).open(why_not);
}

template <std::string (&obstacle)(const GpuSource&, int)>
std::optional<std::string> obstacle_here(int) {
  const std::string found = obstacle(cuda_gpus(), 0);
  return found.empty() ? std::nullopt : std::optional(found);
}

constexpr std::array kRows = {
    WindowRow{"peer", "memory of the GPUs of ranks on this node, which they map",
              obstacle_here<obstacle_to_mapping>, open<PeerOpening>},
    WindowRow{"host_staged",
              "pinned memory that ranks on this node share, and the help of the target's process",
              obstacle_here<device_obstacle>, open<StagedOpening>},
};

}  // namespace

std::span<const WindowRow> device_window_rows() { return kRows; }

}  // namespace altorch
