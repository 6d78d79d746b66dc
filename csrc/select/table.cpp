// SPDX-License-Identifier: BSD-3-Clause
#include "select/table.h"

#include <algorithm>
#include <array>

namespace altorch {
namespace {

constexpr OpKinds kAllReduce = kinds_of(OpKind::kAllReduce), kReduce = kinds_of(OpKind::kReduce),
                  kBroadcast = kinds_of(OpKind::kBroadcast), kAllGather = kinds_of(OpKind::kAllGather),
                  kReduceScatter = kinds_of(OpKind::kReduceScatter), kAllToAll = kinds_of(OpKind::kAllToAll),
                  kGather = kinds_of(OpKind::kGather), kScatter = kinds_of(OpKind::kScatter),
                  kScan = kinds_of(OpKind::kScan), kExscan = kinds_of(OpKind::kExscan),
                  kBarrier = kinds_of(OpKind::kBarrier), kReductions = kAllReduce | kReduce,
                  kVectors = kAllReduce | kReduce | kBroadcast | kAllGather | kReduceScatter;

constexpr Row native(std::string_view carrier, const char* reason, const char* needs, Limits limits = {}) {
  return {.on = On::kHost,
          .kinds = kAllKinds,
          .carrier = carrier,
          .reason = reason,
          .limits = limits,
          .needs = needs};
}
constexpr Row host(OpKinds kinds, std::string_view algorithm, const char* reason, Limits limits = {}) {
  return {.on = On::kHost,
          .kinds = kinds,
          .carrier = algorithm,
          .reason = reason,
          .limits = limits,
          .benchmark = "cpu_collectives"};
}

// A few ranks exchange with all peers at once, because one more message costs less than one more
// wait for the peers. With fewer cores than ranks, a wait is a turn of the scheduler. With more
// ranks, the number of messages decides.
constexpr int kFewRanks = 8;
// Up to so many bytes received by a rank, sending whole vectors to all ranks beats two waits with
// less data. Of a broadcast: sent by the root.
constexpr std::int64_t kOneShot = 128 * kKiB, kOneShotBroadcast = kMiB;

// The last row of each kind has no limit. Below the limits few rounds matter, above them few bytes.
constexpr Row kHostRows[] = {
    native("shm", "one node: through memory that its ranks share", "it is for ranks that share memory"),
    native("hierarchical", "several nodes: through memory on each, by messages between them",
           "it is for several nodes, with several ranks on one of them"),
    native("native", "the MPI library's own collective", "it is for groups whose messages go over MPI",
           {.only = Only::kNamed}),

    host(kAllReduce, "one_shot", "small, few ranks: one wait for the peers",
         {.most_ranks = kFewRanks, .to_all = kOneShot}),
    host(kAllReduce, "pairwise", "few ranks: two waits for the peers, each byte reduced once",
         {.most_ranks = kFewRanks}),
    host(kAllReduce, "recursive_doubling", "small: fewest rounds", {.bytes = 64 * kKiB}),
    // Only algorithms that combine all values in one step can round once.
    host(kAllReduce, "one_shot", "exact sums, small: one wait for the peers",
         {.only = Only::kExact, .to_all = kOneShot}),
    host(kAllReduce, "pairwise", "exact sums: all values of an element meet in one place",
         {.only = Only::kExact}),
    // Other algorithms would carry half types as float32.
    host(kAllReduce, "pairwise", "half types: half the bytes on the wire", {.only = Only::kHalfTypes}),
    host(kAllReduce, "rabenseifner", "medium: few rounds, each byte reduced once",
         {.only = Only::kPowersOfTwo, .bytes = 4 * kMiB}),
    host(kAllReduce, "ring", "large: every link busy, reduction overlaps transfer"),

    host(kReduce, "linear", "small, few ranks: one wait for the peers",
         {.most_ranks = kFewRanks, .to_all = kOneShot}),
    host(kReduce, "binomial", "small: fewest rounds", {.bytes = 64 * kKiB}),
    host(kReduce, "pairwise", "large: each byte reduced once"),

    host(kBroadcast, "linear", "two ranks: one wait for the root", {.most_ranks = 2}),
    host(kBroadcast, "linear", "small, few ranks: one wait for the root",
         {.most_ranks = kFewRanks, .to_all = kOneShotBroadcast}),
    host(kBroadcast, "pairwise", "large, few ranks: the root sends each byte once, two waits",
         {.most_ranks = kFewRanks}),
    host(kBroadcast, "binomial", "small: fewest rounds", {.bytes = 64 * kKiB}),
    host(kBroadcast, "scatter_all_gather", "large: the root sends each byte once"),

    host(kAllGather, "linear", "few ranks: one wait for the peers, no copies", {.most_ranks = kFewRanks}),
    host(kAllGather, "ring", "uneven blocks", {.only = Only::kUneven}),
    host(kAllGather, "bruck", "small: fewest rounds", {.bytes = 8 * kKiB}),
    host(kAllGather, "ring", "large: neighbours only, no copies"),

    host(kReduceScatter, "pairwise", "each byte crosses once"),

    host(kAllToAll, "linear", "few ranks: one wait for the peers", {.most_ranks = kFewRanks}),
    // Not bruck for small blocks: it takes even ones only, and a rank whose own blocks are of one
    // size does not know whether all are.
    host(kAllToAll, "pairwise", "each byte crosses once"),

    host(kGather, "linear", "only the root knows the blocks"),
    host(kScatter, "linear", "only the root knows the blocks"),

    host(kScan, "recursive_doubling", "fewest rounds"),
    host(kExscan, "recursive_doubling", "fewest rounds"),

    host(kBarrier, "linear", "few ranks: one wait for the peers", {.most_ranks = kFewRanks}),
    host(kBarrier, "dissemination", "fewest rounds"),
};

constexpr const char *kSmall = "small: one kernel that writes into the memory of the other GPUs",
                     *kTwoGpus = "two GPUs: one kernel that writes into the memory of the other",
                     *kFewGpus = "few GPUs: one kernel that writes into the memory of the others",
                     *kHostTime = "small, on one node: half of the host's time that NCCL needs",
                     *kSharedGpu =
                         "small, on a GPU that ranks share: flags would wait for it to switch between "
                         "processes",
                     *kPairs = "small blocks: one kernel that writes into the memory of the other GPUs",
                     *kPairsOnHost = "small blocks, on one node: half of the host's time that NCCL needs";
constexpr Row cuda(OpKinds kinds, std::string_view route, const char* reason, Limits limits = {}) {
  limits.fewest_ranks = std::max(limits.fewest_ranks, 2);
  return {.on = On::kGpu,
          .kinds = kinds,
          .carrier = route,
          .reason = reason,
          .limits = limits,
          .benchmark = "cuda_collectives"};
}
constexpr Row cuda_general(std::string_view route, const char* reason) {
  return {.on = On::kGpu, .kinds = kAllKinds, .carrier = route, .reason = reason};
}

// The first rows give a route a size up to which it comes before NCCL. `peer`: up to these sizes it
// is done earlier on the GPU than NCCL, and does not delay kernels beside it
// (benchmarks/cuda_overlap.py), on two H100s, and on two and four H200s with NVLink; more ranks are
// not measured. `host_staged`: at most some microseconds later on the GPU than NCCL, for half of
// the host's time. An all_to_all has no limit of size: a rank does not know the sizes of its peers.
constexpr Row kGpuRows[] = {
    cuda(kVectors, "peer", kSmall, {.most_ranks = 8, .bytes = 64 * kKiB, .to_all = 256 * kKiB}),
    cuda(kVectors, "peer", kSmall, {.fewest_ranks = 9, .bytes = 32 * kKiB}),
    cuda(kReductions | kReduceScatter, "peer", kTwoGpus,
         {.only = Only::kLinked, .most_ranks = 2, .bytes = 256 * kMiB}),
    cuda(kAllGather, "peer", kTwoGpus, {.only = Only::kLinked, .most_ranks = 2, .bytes = 128 * kMiB}),
    cuda(kBroadcast, "peer", kTwoGpus, {.only = Only::kLinked, .most_ranks = 2, .bytes = 64 * kMiB}),
    cuda(kReductions | kAllGather, "peer", kTwoGpus, {.most_ranks = 2, .bytes = 8 * kMiB}),
    cuda(kReduceScatter | kBroadcast, "peer", kTwoGpus, {.most_ranks = 2, .bytes = 16 * kMiB}),
    cuda(kAllToAll, "peer", kTwoGpus, {.most_ranks = 2}),
    cuda(kAllReduce | kAllGather, "peer", kFewGpus,
         {.only = Only::kLinked, .most_ranks = 4, .bytes = 16 * kMiB}),
    cuda(kReduceScatter, "peer", kFewGpus, {.only = Only::kLinked, .most_ranks = 4, .bytes = 64 * kMiB}),
    cuda(kBroadcast, "peer", kFewGpus, {.only = Only::kLinked, .most_ranks = 4, .bytes = 4 * kMiB}),
    cuda(kAllToAll, "peer", kFewGpus, {.only = Only::kLinked, .most_ranks = 4}),
    cuda(kVectors, "host_staged", kHostTime,
         {.only = Only::kCoResident, .bytes = 64 * kKiB, .to_all = 192 * kKiB}),
    cuda(kVectors, "host_relay", kSharedGpu, {.only = Only::kSharedGpus, .bytes = 512 * kKiB}),
    cuda(kAllToAll, "peer", kPairs, {.only = Only::kCoResident, .in_pairs = true}),
    cuda(kAllToAll, "host_staged", kPairsOnHost, {.only = Only::kCoResident, .in_pairs = true}),

    cuda_general("alone", "one rank: nothing has to move between GPUs"),
    cuda_general("nccl", "every rank has a GPU of its own, and NCCL has the operation"),
    cuda_general("peer", "the GPUs write into each other's memory"),
    cuda_general("host_staged", "the GPUs exchange through pinned memory themselves"),
    cuda_general(
        "hierarchical",
        "several nodes: on each node first, then between ranks that have the same place on their nodes"),
    cuda_general("host_relay", "carries anything between any ranks"),
};

constexpr Row window(On on, std::string_view way, const char* reason, const char* needs, Limits limits = {}) {
  return {.on = on,
          .kinds = kinds_of(OpKind::kOneSided),
          .carrier = way,
          .reason = reason,
          .limits = limits,
          .needs = needs};
}

constexpr Row kHostWindowRows[] = {
    window(On::kHostWindow, "shm", "the memory of ranks on this node, written and read at once",
           "it is for ranks that share memory"),
    window(On::kHostWindow, "mpi", "MPI's one-sided communication, where the group's messages go over MPI",
           "it is for groups whose messages go over MPI"),
    window(On::kHostWindow, "messages", "messages to a thread of the other rank, which carries them out", ""),
};
constexpr Row kGpuWindowRows[] = {
    window(On::kGpuWindow, "peer", "memory of the GPUs of ranks on this node, which they map",
           "it is for ranks on one node"),
    window(On::kGpuWindow, "host_staged",
           "pinned memory that ranks on this node share, and the help of the target's process",
           "it is for ranks on one node"),
    window(On::kGpuWindow, "host_relay", "messages between the hosts of both ranks, which copy and serve",
           "it is for at most 64 ranks: each pins 4 MiB for every other", {.most_ranks = 64}),
    window(On::kGpuWindow, "nccl",
           "NCCL's own windows beside mapped memory; only where ALTORCH_ROUTE=window=nccl asks",
           "it is for ranks on one node", {.only = Only::kNamed}),
    window(On::kGpuWindow, "nvshmem",
           "NVSHMEM, and host_relay for the rest; only where ALTORCH_ROUTE=window=nvshmem asks",
           "it is for at most 64 ranks, each with its own GPU, or with MPS",
           {.only = Only::kNamed, .most_ranks = 64}),
};

constexpr Row links(std::string_view transport, const char* reason, const char* needs) {
  return {.on = On::kLinks, .kinds = kAllKinds, .carrier = transport, .reason = reason, .needs = needs};
}

constexpr Row kLinksRows[] = {
    links("shm", "its ranks share the memory of one node, and neither a launcher nor a setting asks for MPI",
          "its ranks are on several nodes, or a launcher or setting asks for MPI"),
    links("mpi", "MPI runs on all of its ranks", "MPI does not run on all of its ranks"),
    links("gloo", "it is always there, as a part of torch", ""),
};

// The Algorithm of each row of kHostRows, or null. Found by name, once.
const std::array<const Algorithm*, std::size(kHostRows)>& algorithms_of_rows() {
  static const auto found = [] {
    std::array<const Algorithm*, std::size(kHostRows)> all{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (kHostRows[i].kinds == kAllKinds) continue;
      for (const Algorithm* each : algorithms()) {
        if (each->name == kHostRows[i].carrier && (kHostRows[i].kinds & kinds_of(each->kind))) all[i] = each;
      }
    }
    return all;
  }();
  return found;
}

// The GpuRouteRow of each row of kGpuRows. Found by name, once.
const std::array<const GpuRouteRow*, std::size(kGpuRows)>& routes_of_rows() {
  static const auto found = [] {
    std::array<const GpuRouteRow*, std::size(kGpuRows)> all{};
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = *std::ranges::find(gpu_route_rows(), kGpuRows[i].carrier, &GpuRouteRow::name);
    return all;
  }();
  return found;
}

}  // namespace

std::span<const Row> rows_on(On on) {
  switch (on) {
    case On::kHost:
      return kHostRows;
    case On::kGpu:
      return kGpuRows;
    case On::kHostWindow:
      return kHostWindowRows;
    case On::kGpuWindow:
      return kGpuWindowRows;
    case On::kLinks:
      return kLinksRows;
  }
  return {};
}

const Algorithm* algorithm_of(const Row& row) {
  return algorithms_of_rows()[static_cast<std::size_t>(&row - std::begin(kHostRows))];
}

const GpuRouteRow& gpu_route_of(const Row& row) {
  return *routes_of_rows()[static_cast<std::size_t>(&row - std::begin(kGpuRows))];
}

std::string default_for(const Algorithm& algorithm) {
  std::string text;
  for (const Row& row : kHostRows) {
    if (algorithm_of(row) == &algorithm) text += (text.empty() ? "for " : "; for ") + calls_of(row);
  }
  return text.empty() ? "only where ALTORCH_ROUTE names it" : text;
}

}  // namespace altorch
