// SPDX-License-Identifier: BSD-3-Clause
#include "backend/recorder/profiler_range.h"

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include "backend/c10d/tensors.h"
#include "base/shape.h"

namespace altorch::backend {
namespace {

std::shared_ptr<torch::ParamCommsDebugInfo> info_of(const Operation& operation, const Communicator& group) {
  const Elements elements = elements_of(operation, group.rank(), group.size());
  const auto splits = [](std::span<const std::int64_t> counts) {
    return std::vector<std::int64_t>(counts.begin(), counts.end());
  };
  const std::vector<int>& ranks = group.global_ranks();
  return std::make_shared<torch::ParamCommsDebugInfo>(
      std::make_tuple(group.name(), std::string()), group.rank(), std::string(name_of(operation.kind)),
      elements.input.value_or(0), elements.output.value_or(0), scalar_type_of(operation.dtype),
      splits(operation.input_counts), splits(operation.output_counts), ranks.front(),
      ranks.size() > 1 ? ranks[1] - ranks[0] : 1, group.size());
}

}  // namespace

ProfilerRange::Comms::Comms(const Operation& operation, const Communicator& group)
    : info(c10::DebugInfoKind::PARAM_COMMS_INFO, info_of(operation, group)),
      range(at::RecordScope::FUNCTION) {
  if (range.isActive()) range.before(at::kParamCommsCallName);
}

}  // namespace altorch::backend
