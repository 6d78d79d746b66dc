// The ways to memory on the GPUs of other ranks.
#include <array>
#include <vector>

#include "common/meeting.h"
#include "engine/route/world.h"
#include "engine/window/card.h"
#include "engine/window/device_window.h"
#include "engine/window/row.h"
#include "transports/shm/shareable.h"
#include "transports/shm/shared_memory.h"

namespace altorch {
namespace {

const std::string kPurpose = "to open a window on GPUs";

std::string obstacle_on(const GpuSource& gpus, int device) {
  if (const auto found = gpus.obstacle(device)) return *found;
  if (const auto found = gpus.kernel_obstacle()) return *found;
  return gpus.export_obstacle(device).value_or("");
}

// The same on all ranks.
std::string obstacle_among(const std::vector<DeviceCard>& cards, const World& world) {
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    if (!cards[rank].obstacle.empty()) return "on rank " + std::to_string(rank) + " " + cards[rank].obstacle;
  }
  if (world.stranger) return "ranks 0 and " + std::to_string(*world.stranger) + " are not on one node";
  return "";
}

class PeerOpening {
 public:
  PeerOpening(const WindowOpening& opening)
      : opening_(opening), gpu_(*opening.gpu), rank_(opening.group.rank()), size_(opening.group.size()) {}

  std::unique_ptr<RemoteMemory> open(std::string& why_not) {
    meet_others();
    const World world = World::of(gpus_);
    why_not = obstacle_among(cards_, world);
    if (!why_not.empty()) return nullptr;
    DeviceWindow::Memory memory;
    Device::Exported signals;
    std::unique_ptr<RemoteMemory> made;
    const auto attempt = [&](const std::string& key, const auto& act) {
      std::string obstacle;
      try {
        act();
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::kTimeout || error.kind() == ErrorKind::kPeerLost) throw;
        obstacle = error.what();
      }
      const auto why = meet_able(opening_.store, key, rank_, size_, opening_.timeout, kPurpose, obstacle);
      if (why) why_not = *why;
      return !why;
    };
    const bool prepared = attempt("prepared", [&] {
      memory.device = gpu_.gpus.open(gpu_.device, !world.kernels_meet());
      signals = memory.device->export_memory(DeviceWindow::signal_bytes(size_));
      memory.counts = memory.device->allocate(DeviceWindow::count_bytes(size_));
      memory.told = memory.device->pin(DeviceWindow::told_bytes(size_));
      // A rank that has nothing passes on its signals once more, so that all take part alike.
      if (!shareable_) shareable_ = Shareable{Descriptor(dup(*signals.descriptor)), 0, 0};
    });
    if (!prepared) return nullptr;
    const bool mapped = attempt("mapped", [&] {
      const std::size_t board = DeviceWindow::board_bytes(size_);
      memory.board = memory.device->pin(
          share_memory(opening_.store, "board", rank_, size_, board, opening_.timeout), board);
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
                                            world.kernels_meet(), atomics_obstacles());
    });
    return mapped ? std::move(made) : nullptr;
  }

 private:
  void meet_others() {
    shareable_ = find_shareable(opening_.memory, opening_.own.bytes);
    DeviceCard own;
    own.gpu = {.gpu = gpu_.gpus.identity(gpu_.device),
               .home = gpu_.gpus.home(),
               .together = gpu_.gpus.together(gpu_.device),
               .obstacles = {}};
    own.obstacle = obstacle_on(gpu_.gpus, gpu_.device);
    if (own.obstacle.empty() && !shareable_ && opening_.own.bytes > 0)
      own.obstacle =
          "the tensor was not made by altorch.empty(..., device='cuda'), so that no other rank can map it";
    if (shareable_ && opening_.own.bytes > 0) own.shareable = {shareable_->bytes, shareable_->offset};
    for (const std::string& word :
         meet(opening_.store, "cards", rank_, size_, opening_.timeout, kPurpose, own.word())) {
      cards_.push_back(DeviceCard::from(word));
      gpus_.push_back(cards_.back().gpu);
    }
  }

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
    for (const GpuPeerInfo& peer : gpus_) {
      const auto found =
          gpu_.gpus.atomics_obstacle ? gpu_.gpus.atomics_obstacle(gpu_.device, peer.gpu) : std::nullopt;
      all.push_back(found.value_or(""));
    }
    return all;
  }

  const WindowOpening& opening_;
  const WindowGpu& gpu_;
  const int rank_, size_;
  std::optional<Shareable> shareable_;
  std::vector<DeviceCard> cards_;
  std::vector<GpuPeerInfo> gpus_;
};

std::unique_ptr<RemoteMemory> open_peer(const WindowOpening& opening, std::string& why_not) {
  return PeerOpening(opening).open(why_not);
}

constexpr std::array kRows = {
    WindowRow{"peer", "memory of the GPUs of ranks on this node, which they map",
              [](int) -> std::optional<std::string> {
                const std::string found = obstacle_on(cuda_gpus(), 0);
                return found.empty() ? std::nullopt : std::optional(found);
              },
              open_peer},
};

}  // namespace

std::span<const WindowRow> device_window_rows() { return kRows; }

}  // namespace altorch
