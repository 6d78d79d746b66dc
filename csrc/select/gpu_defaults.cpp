// SPDX-License-Identifier: BSD-3-Clause
#include "select/gpu_defaults.h"

#include <algorithm>

#include "base/shape.h"
#include "select/table.h"

namespace altorch {
namespace {

constexpr OpKinds kVectors = kinds_of(OpKind::kAllReduce, OpKind::kReduce, OpKind::kBroadcast,
                                      OpKind::kAllGather, OpKind::kReduceScatter),
                  kReductions = kinds_of(OpKind::kAllReduce, OpKind::kReduce),
                  kBroadcast = kinds_of(OpKind::kBroadcast), kAllGather = kinds_of(OpKind::kAllGather),
                  kReduceScatter = kinds_of(OpKind::kReduceScatter), kAllToAll = kinds_of(OpKind::kAllToAll);

constexpr const char *kSmall = "small: one kernel that writes into the memory of the other GPUs",
                     *kTwoGpus = "two GPUs: one kernel that writes into the memory of the other",
                     *kFewGpus = "few GPUs: one kernel that writes into the memory of the others",
                     *kHostTime = "small, on one node: the host is done in half the time that NCCL needs",
                     *kSharedGpu =
                         "small, on a GPU that ranks share: flags would wait for it to switch between "
                         "processes",
                     *kPairs = "small blocks: one kernel that writes into the memory of the other GPUs",
                     *kPairsOnHost =
                         "small blocks, on one node: the host is done in half the time that NCCL needs";

constexpr const GpuRouteRow *kPeer = &gpu_rows::peer, *kStaged = &gpu_rows::host_staged,
                            *kRelay = &gpu_rows::host_relay;

// Set by benchmarks/cuda_collectives.py. `peer`: up to these sizes the device is done earlier than
// by NCCL, on two H100s and H200s linked by NVLink, up to 256 MiB in all, and on four H200s;
// kernels that run beside it are done no later, either (benchmarks/cuda_overlap.py). Among more
// ranks, larger sizes are not measured yet. `host_staged`: at most some microseconds later than by
// NCCL, and mostly earlier, with half of the host's time. An all_to_all goes one way whatever its
// size: a rank does not know the sizes of the others.
constexpr GpuDefaultRow kRows[] = {
    {.route = kPeer,
     .reason = kSmall,
     .kinds = kVectors,
     .most_ranks = 8,
     .bytes = 64 * kKiB,
     .to_all = 256 * kKiB},
    {.route = kPeer, .reason = kSmall, .kinds = kVectors, .fewest_ranks = 9, .bytes = 32 * kKiB},
    {.route = kPeer,
     .reason = kTwoGpus,
     .kinds = kReductions | kReduceScatter,
     .gpus = Gpus::kLinked,
     .most_ranks = 2,
     .bytes = 256 * kMiB},
    {.route = kPeer,
     .reason = kTwoGpus,
     .kinds = kAllGather,
     .gpus = Gpus::kLinked,
     .most_ranks = 2,
     .bytes = 128 * kMiB},
    {.route = kPeer,
     .reason = kTwoGpus,
     .kinds = kBroadcast,
     .gpus = Gpus::kLinked,
     .most_ranks = 2,
     .bytes = 64 * kMiB},
    {.route = kPeer,
     .reason = kTwoGpus,
     .kinds = kReductions | kAllGather,
     .most_ranks = 2,
     .bytes = 8 * kMiB},
    {.route = kPeer,
     .reason = kTwoGpus,
     .kinds = kReduceScatter | kBroadcast,
     .most_ranks = 2,
     .bytes = 16 * kMiB},
    {.route = kPeer, .reason = kTwoGpus, .kinds = kAllToAll, .most_ranks = 2},
    {.route = kPeer,
     .reason = kFewGpus,
     .kinds = kinds_of(OpKind::kAllReduce) | kAllGather,
     .gpus = Gpus::kLinked,
     .most_ranks = 4,
     .bytes = 16 * kMiB},
    {.route = kPeer,
     .reason = kFewGpus,
     .kinds = kReduceScatter,
     .gpus = Gpus::kLinked,
     .most_ranks = 4,
     .bytes = 64 * kMiB},
    {.route = kPeer,
     .reason = kFewGpus,
     .kinds = kBroadcast,
     .gpus = Gpus::kLinked,
     .most_ranks = 4,
     .bytes = 4 * kMiB},
    {.route = kPeer, .reason = kFewGpus, .kinds = kAllToAll, .gpus = Gpus::kLinked, .most_ranks = 4},

    {.route = kStaged,
     .reason = kHostTime,
     .kinds = kVectors,
     .gpus = Gpus::kCoResident,
     .bytes = 64 * kKiB,
     .to_all = 192 * kKiB},
    {.route = kRelay, .reason = kSharedGpu, .kinds = kVectors, .gpus = Gpus::kShared, .bytes = 512 * kKiB},

    {.route = kPeer, .reason = kPairs, .kinds = kAllToAll, .gpus = Gpus::kCoResident, .in_pairs = true},
    {.route = kStaged,
     .reason = kPairsOnHost,
     .kinds = kAllToAll,
     .gpus = Gpus::kCoResident,
     .in_pairs = true},
};

bool holds(Gpus gpus, const World& world) {
  switch (gpus) {
    case Gpus::kAny:
      return true;
    case Gpus::kLinked:
      return world.linked;
    case Gpus::kCoResident:
      return world.co_resident();
    case Gpus::kShared:
      return !world.co_resident();
  }
  return false;
}

}  // namespace

bool GpuDefaultRow::applies_to_group(const Operation& operation, const World& world) const {
  if ((kinds & kinds_of(operation.kind)) == 0 || !holds(gpus, world)) return false;
  if (in_pairs && world.missing[index_of(gpu_rows::nccl)]) return false;
  return world.ranks >= fewest_ranks && world.ranks <= most_ranks;
}

bool GpuDefaultRow::serves(const Operation& operation, const World& world) const {
  if (!applies_to_group(operation, world)) return false;
  if (most_sent(world) == kUnlimited) return true;
  const std::int64_t sent =
      even_elements(operation, world.ranks) * static_cast<std::int64_t>(size_of(operation.dtype));
  return sent > 0 && sent <= most_sent(world);
}

std::int64_t GpuDefaultRow::most_sent(const World& world) const {
  return to_all == kUnlimited ? bytes : std::min(bytes, to_all / (world.ranks - 1) / kKiB * kKiB);
}

std::span<const GpuDefaultRow> gpu_default_rows() { return kRows; }

}  // namespace altorch
