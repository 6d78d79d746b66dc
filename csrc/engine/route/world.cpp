#include "engine/route/world.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "device/device.h"

namespace altorch {
namespace {

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text + "\n";
}

}  // namespace

std::string GpuCard::text() const {
  std::string all = one_line(gpu) + one_line(home);
  for (const std::string& obstacle : obstacles) all += one_line(obstacle);
  return all;
}

GpuCard GpuCard::from(const std::string& text) {
  GpuCard card;
  std::istringstream lines(text);
  std::getline(lines, card.gpu);
  std::getline(lines, card.home);
  for (std::string& obstacle : card.obstacles) std::getline(lines, obstacle);
  return card;
}

World World::of(std::span<const GpuCard> cards) {
  World world{.ranks = static_cast<int>(cards.size())};
  const auto miss = [&](GpuRouteId id, const std::string& reason) {
    if (!world.missing[id]) world.missing[id] = reason;
  };
  std::map<std::string_view, std::size_t> user_of;  // the first rank of each GPU
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const GpuCard& card = cards[rank];
    for (int id = 0; id < kGpuRouteIds; ++id) {
      const std::string& obstacle = card.obstacles[static_cast<std::size_t>(id)];
      if (!obstacle.empty())
        miss(static_cast<GpuRouteId>(id), "on rank " + std::to_string(rank) + " " + obstacle);
    }
    if (card.home != cards.front().home) {
      world.one_home = false;
      miss(kHostStaged, "ranks 0 and " + std::to_string(rank) + " share no memory");
    }
    const auto [first, alone] = user_of.emplace(card.gpu, rank);
    if (alone) continue;
    world.own_gpus = false;
    miss(kNccl, "ranks " + std::to_string(first->second) + " and " + std::to_string(rank) +
                    " share one GPU, which NCCL refuses");
  }
  if (world.ranks > DeviceReduction::kMaxParts)
    miss(kHostStaged, "there are more than " + std::to_string(DeviceReduction::kMaxParts) + " ranks");
  return world;
}

}  // namespace altorch
