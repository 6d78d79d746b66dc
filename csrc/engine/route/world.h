// What the ranks of a group know alike of each other's GPUs, after one meeting: the same everywhere, so that
// whatever is decided from it is decided alike.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>

namespace altorch {

// The routes of CUDA tensors, as in ALTORCH_ROUTE and in statistics.
enum GpuRouteId { kNccl, kHostStaged, kHostRelay, kGpuRouteIds };
inline constexpr std::string_view kGpuRouteNames[kGpuRouteIds] = {"nccl", "host_staged", "host_relay"};

// What a rank tells the others.
struct GpuCard {
  std::string gpu, home;                            // the same text: the same GPU, the same node
  std::array<std::string, kGpuRouteIds> obstacles;  // why a route cannot serve on this rank; empty: it can

  // A line for each; newlines within become spaces.
  std::string text() const;
  static GpuCard from(const std::string& text);
};

struct World {
  int ranks = 1;
  bool one_home = true;                                               // all share memory
  bool own_gpus = true;                                               // no two ranks share a GPU
  std::array<std::optional<std::string>, kGpuRouteIds> missing = {};  // why a route serves no call here

  // By rank; at least one.
  static World of(std::span<const GpuCard> cards);
};

}  // namespace altorch
