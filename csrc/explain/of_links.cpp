// SPDX-License-Identifier: BSD-3-Clause
// What is chosen once: the route of a window, and what carries the messages of a group.
#include <string_view>

#include "explain/parts.h"
#include "select/decide.h"
#include "select/table.h"

namespace altorch {
namespace {

// As far as the question tells; a route may also turn out to be unsupported when it is opened.
bool serves(std::string_view carrier, const Question& question) {
  const bool one_node = question.nodes == 1;
  if (carrier == "mpi") return question.over_mpi;
  if (carrier == "shm" || carrier == "peer" || carrier == "host_staged" || carrier == "nccl") return one_node;
  return true;
}

}  // namespace

Explanation explain_window(const Question& question, const Operation& asked) {
  Explanation said;
  const auto rows = rows_on(question.on_gpus ? On::kGpuWindow : On::kHostWindow);
  const auto taken = decide({&asked, 1}, World{.ranks = question.ranks}, Rules(),
                            [&](const Route& way) { return serves(way.name, question); });
  said.route = said.algorithm = taken ? taken->name : "none";
  if (taken) said.reason = taken->reason;
  for (const Row& row : rows) {
    if (taken && row.carrier == taken->name) continue;
    const bool named_only = row.limits.only == Only::kNamed;
    said.others.push_back({std::string(row.carrier), named_only ? calls_of(row)
                                                     : !taken || !serves(row.carrier, question)
                                                         ? row.needs
                                                         : "an earlier one serves"});
  }
  return said;
}

Explanation explain_message(const Question& question) {
  Explanation said;
  said.route = said.algorithm = "message";
  said.reason = "posted at once by the calling thread; ";
  bool taken = false;
  for (const Row& row : rows_on(On::kLinks)) {
    const bool serves_here =
        row.carrier == "shm" ? question.nodes == 1 && !question.over_mpi : serves(row.carrier, question);
    if (serves_here && !taken) {
      said.protocol = row.carrier;
      said.reason += row.reason;
    } else {
      said.others.push_back({std::string(row.carrier), serves_here ? "an earlier one serves" : row.needs});
    }
    taken |= serves_here;
  }
  return said;
}

}  // namespace altorch
