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
  const bool one = !asked.is_message() && nccl::Communicator::is_one_call(call_of(asked));
  return one ? "one call of NCCL on the stream\n"
             : "ncclSend and ncclRecv on the stream, as one group where they are several\n";
}

bool goes_in_pairs(const Operation& asked, int ranks) {
  const auto bytes = static_cast<std::size_t>(asked.count) * size_of(asked.dtype);
  return asked.kind == OpKind::kAllToAll && bytes > 0 && bytes <= board_layout(ranks).pair_bytes();
}

std::string steps_of_staging(const Operation& asked, int ranks, bool share_gpus) {
  const BoardLayout layout = board_layout(ranks);
  const auto element = static_cast<std::int64_t>(size_of(asked.dtype));
  if (!share_gpus && goes_in_pairs(asked, ranks))
    return "one kernel per rank: it posts a block for each other rank, and takes theirs when they are "
           "there\n";
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
            std::string(RouteTable().choose(asked, ranks, true).name()) + ")";
  } else {
    text += "messages";
  }
  return text + ", copied back; pieces overlap\n";
}

}  // namespace

Explanation explain_on_gpus(const std::string& operation, const std::string& dtype, std::int64_t bytes,
                            int ranks, int nodes, bool share_gpus) {
  Operation asked;
  asked.kind = kind_named(operation);
  asked.dtype = dtype_named(dtype);
  asked.count = bytes / static_cast<std::int64_t>(size_of(asked.dtype));
  std::string missing[3];
  if (share_gpus) missing[0] = "ranks share a GPU, which NCCL refuses";
  if (auto obstacle = NcclRoute::obstacle_to(asked)) missing[0] = *obstacle;
  if (nodes > 1) missing[1] = "ranks of several nodes share no memory";
  if (ranks > DeviceReduction::kMaxParts) missing[1] = "there are too many ranks on one node";
  const std::string_view ruled = RouteTable().gpu_route(asked, ranks);
  const std::string steps[] = {steps_of_nccl(asked), steps_of_staging(asked, ranks, share_gpus),
                               steps_of_relay(asked, ranks)};
  const char* reasons[] = {"every rank has a GPU of its own, and NCCL has the operation",
                           "the GPUs exchange through pinned memory themselves",
                           "carries anything between any ranks"};
  std::vector<std::size_t> order{0, 1, 2};
  auto small = GpuRoutes::preferred(ranks, !share_gpus, asked);
  if (!share_gpus && goes_in_pairs(asked, ranks)) small = GpuRoutes::kHostStaged;
  if (small && ruled.empty() && missing[*small].empty()) {
    reasons[1] = "small, on one node: the host is done in half the time that NCCL needs";
    reasons[2] = "small, on a GPU that ranks share: flags would wait for it to switch between processes";
    std::rotate(order.begin(), order.begin() + *small, order.begin() + *small + 1);
  }
  Explanation said;
  for (const std::size_t i : order) {
    const std::string name(kGpuRouteNames[i]);
    if (!ruled.empty() && ruled != name && missing[i].empty())
      missing[i] = "ALTORCH_ROUTE says " + std::string(ruled);
    if (said.route.empty() && missing[i].empty()) {
      said.route = name;
      said.algorithm = name;
      said.reason = ruled == name ? "ALTORCH_ROUTE" : reasons[i];
      said.rounds = steps[i];
    } else {
      said.others.push_back({name, missing[i].empty() ? "the first that serves is taken" : missing[i]});
    }
  }
  if (said.route.empty()) said.route = said.algorithm = "none";
  return said;
}

}  // namespace altorch
