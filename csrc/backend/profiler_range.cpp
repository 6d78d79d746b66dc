#include "backend/profiler_range.h"

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include "backend/tensors.h"

namespace altorch::backend {
namespace {

struct Elements {
  std::int64_t in = 0, out = 0;
};

// Of this rank's tensors, whole.
Elements elements_of(const Operation& operation, int rank, int size) {
  const auto all = [](std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  if (operation.uneven()) return {all(operation.input_counts), all(operation.output_counts)};
  const std::int64_t each = operation.count, together = each * size;
  const bool is_root = operation.root == rank;
  switch (operation.kind) {
    case OpKind::kAllGather:
      return {each, together};
    case OpKind::kGather:
      return {each, is_root ? together : 0};
    case OpKind::kReduceScatter:
      return {together, each};
    case OpKind::kScatter:
      return {is_root ? together : 0, each};
    case OpKind::kAllToAll:
      return {together, together};
    case OpKind::kSend:
      return {each, 0};
    case OpKind::kReceive:
      return {0, each};
    case OpKind::kBarrier:
      return {0, 0};
    default:
      return {each, each};
  }
}

std::shared_ptr<torch::ParamCommsDebugInfo> info_of(const Operation& operation, const Communicator& group) {
  const Elements elements = elements_of(operation, group.rank(), group.size());
  const auto splits = [](std::span<const std::int64_t> counts) {
    return std::vector<std::int64_t>(counts.begin(), counts.end());
  };
  const std::vector<int>& ranks = group.global_ranks();
  return std::make_shared<torch::ParamCommsDebugInfo>(
      std::make_tuple(group.name(), std::string()), group.rank(), std::string(name_of(operation.kind)),
      elements.in, elements.out, scalar_type_of(operation.dtype), splits(operation.input_counts),
      splits(operation.output_counts), ranks.front(), ranks.size() > 1 ? ranks[1] - ranks[0] : 1,
      group.size());
}

}  // namespace

ProfilerRange::Comms::Comms(const Operation& operation, const Communicator& group)
    : info(c10::DebugInfoKind::PARAM_COMMS_INFO, info_of(operation, group)),
      range(at::RecordScope::FUNCTION) {
  if (range.isActive()) range.before(at::kParamCommsCallName);
}

}  // namespace altorch::backend
