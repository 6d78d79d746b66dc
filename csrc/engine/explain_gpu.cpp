// What `altorch explain --device cuda` says.
#include <algorithm>
#include <vector>

#include "engine/collective.h"
#include "engine/explain.h"
#include "engine/gpu_routes.h"
#include "engine/host_staged/relay.h"
#include "engine/host_staged/shared.h"
#include "engine/nccl_route.h"

namespace altorch {
namespace {

std::string size_text(std::int64_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

std::string steps_of_nccl(const Operation& asked) {
  const bool one = !asked.is_message() && nccl::Communicator::is_one_call(asked);
  return one ? "one call of NCCL on the stream\n"
             : "ncclSend and ncclRecv on the stream, as one group where they are several\n";
}

bool goes_in_pairs(const Operation& asked, int ranks) {
  const auto bytes = static_cast<std::size_t>(asked.count) * size_of(asked.dtype);
  return asked.kind == OpKind::kAllToAll && bytes > 0 && bytes <= board_layout(ranks).pair_bytes();
}

constexpr const char* kStepsInPairs =
    "one kernel per rank: it posts a block for each other rank, and takes theirs when they are there\n";

std::string steps_of_staging(const Operation& asked, int ranks, bool share_gpus) {
  const BoardLayout layout = board_layout(ranks);
  const auto element = static_cast<std::int64_t>(size_of(asked.dtype));
  if (!share_gpus && goes_in_pairs(asked, ranks)) return kStepsInPairs;
  if (!is_vector_collective(asked.kind)) {
    const std::size_t pieces =
        pieces_of(static_cast<std::size_t>(asked.count * element), layout.letter_bytes);
    return std::to_string(pieces) + " piece(s) of up to " +
           size_text(static_cast<std::int64_t>(layout.letter_bytes)) +
           " for each pair of ranks: the sender's GPU copies out, the receiver's copies in\n";
  }
  if (!share_gpus && Shared::is_small(asked, ranks, layout.small_bytes))
    return "one kernel per rank: it posts this rank's part, and takes the others' when they are there\n";
  const PieceCutter cutter(asked, 0, ranks, Shared::step_of(asked, ranks, layout.slot_bytes));
  std::string text = std::to_string(cutter.pieces()) + " piece(s) of up to " +
                     size_text(std::min(cutter.step(), asked.count) * element) +
                     ": each rank copies to pinned memory what others need; ";
  if (asked.reduces()) text += "reduces its share of everybody's; ";
  return text + "copies in what it lacks; pieces overlap\n";
}

std::string steps_of_relay(Operation asked, int ranks) {
  const RelayOptions options;
  const auto piece = static_cast<std::int64_t>(Relay::piece_bytes(pinned_bytes(), options.slots));
  const auto element = static_cast<std::int64_t>(size_of(asked.dtype));
  const bool vectors = is_vector_collective(asked.kind);
  const std::int64_t step =
      vectors ? Relay::step_of(asked, ranks, static_cast<std::size_t>(piece)) : piece / element;
  const std::int64_t pieces = std::max<std::int64_t>(1, (asked.count + step - 1) / step);
  asked.count = std::min(asked.count, step);
  std::string text = std::to_string(pieces) + " piece(s) of up to " + size_text(asked.count * element) +
                     ": copied to pinned memory, carried by the host as ";
  if (vectors) {
    text += std::string(name_of(asked.kind)) + " (" +
            std::string(Rules().choose(asked, ranks, mpi_offers(asked, ranks)).name()) + ")";
  } else {
    text += "messages";
  }
  return text + ", copied back; pieces overlap\n";
}

// Ranks in a row on each node, with a GPU for each or one for all of the node.
World imagined(int ranks, int nodes, bool share_gpus) {
  std::vector<GpuCard> cards(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    GpuCard& card = cards[static_cast<std::size_t>(rank)];
    card.home = std::to_string(static_cast<std::int64_t>(rank) * nodes / ranks);
    card.gpu = card.home + (share_gpus ? "" : "/" + std::to_string(rank));
  }
  return World::of(cards);
}

}  // namespace

Explanation explain_on_gpus(const std::string& operation, const std::string& dtype, std::int64_t bytes,
                            int ranks, int nodes, bool share_gpus) {
  Operation asked;
  asked.kind = kind_named(operation);
  asked.dtype = dtype_named(dtype);
  asked.count = bytes / static_cast<std::int64_t>(size_of(asked.dtype));
  const World world = imagined(ranks, nodes, share_gpus);
  const std::string_view ruled = Rules().gpu_route(asked, ranks);
  const Candidates candidates({&asked, 1}, world, ruled);
  const auto taken = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return !obstacle(candidate.id, {&asked, 1}, world, false) &&
           (!candidate.in_pairs || goes_in_pairs(asked, ranks));
  });
  Explanation said;
  said.route = said.algorithm = "none";
  if (taken != candidates.end()) {
    said.route = said.algorithm = kGpuRouteNames[taken->id];
    said.reason = taken->reason;
    said.rounds = taken->in_pairs            ? kStepsInPairs
                  : taken->id == kNccl       ? steps_of_nccl(asked)
                  : taken->id == kHostStaged ? steps_of_staging(asked, ranks, share_gpus)
                                             : steps_of_relay(asked, ranks);
  }
  for (const GpuRouteId id : {kNccl, kHostStaged, kHostRelay}) {
    if (taken != candidates.end() && taken->id == id) continue;
    const bool allowed = std::any_of(candidates.begin(), candidates.end(),
                                     [&](const Candidate& candidate) { return candidate.id == id; });
    said.others.push_back({std::string(kGpuRouteNames[id]),
                           obstacle(id, {&asked, 1}, world, false)
                               .value_or(allowed ? "the first that serves is taken"
                                                 : "ALTORCH_ROUTE says " + std::string(ruled))});
  }
  return said;
}

}  // namespace altorch
