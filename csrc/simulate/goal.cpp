// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/goal.h"

#include <cmath>
#include <ostream>
#include <string>

#include "base/error.h"
#include "runtime/host_world.h"
#include "simulate/schedules.h"

namespace altorch {
namespace {

// One rank's vertices. Those of a round start after `before`, the last vertex of the round before.
class GoalRank {
 public:
  GoalRank(std::ostream& out, const Schedule& schedule, double element, double gamma)
      : out_(out), schedule_(schedule), element_(element), gamma_(gamma) {}

  void write() {
    vertex("calc 0");
    for (const Round& round : schedule_.rounds) write(round);
  }

 private:
  void write(const Round& round) {
    const int before = last_;
    const double reduced = static_cast<double>(reduced_elements(schedule_, round)) * element_;
    const int first = last_ + 1;
    for (auto i = round.messages_begin; i < round.messages_end; ++i) {
      const Step& step = schedule_.steps[i];
      const auto bytes = std::to_string(std::llround(static_cast<double>(step.a.count) * element_));
      const bool sends = step.kind == StepKind::kSend;
      vertex((sends ? "send " : "recv ") + bytes + (sends ? "b to " : "b from ") + std::to_string(step.peer) +
             " tag 0");
      requires_vertex(last_, before);
    }
    vertex("calc " + std::to_string(std::llround(reduced * gamma_ * 1e9)));
    requires_vertex(last_, before);
    const int end = last_;
    if (first == end) return;
    vertex("calc 0");
    for (int each = first; each <= end; ++each) requires_vertex(last_, each);
  }
  void vertex(const std::string& what) { out_ << 'l' << ++last_ << ": " << what << '\n'; }
  void requires_vertex(int vertex, int before) { out_ << 'l' << vertex << " requires l" << before << '\n'; }

  std::ostream& out_;
  const Schedule& schedule_;
  const double element_, gamma_;
  int last_ = 0;
};

}  // namespace

void write_goal(std::ostream& out, const Operation& call, const Network& network) {
  network.check();
  const int ranks = network.ranks();
  const Route route = route_on_host(call, ranks, network.nodes);
  if (!route.algorithm) {
    throw Error(ErrorKind::kInvalidArgument,
                std::string(name_of(call.kind)) + " takes the route '" + std::string(route.name) +
                    "' in this group, which GOAL cannot describe: it holds only messages among all ranks. "
                    "Set --per-node 1, or name an algorithm in ALTORCH_ROUTE");
  }
  const Schedules schedules(*route.algorithm, call, ranks);
  std::int64_t steps = 0;
  for (int rank = 0; rank < ranks && steps <= kMostGoalSteps; ++rank)
    steps += static_cast<std::int64_t>(schedules.of(rank).steps.size());
  if (steps > kMostGoalSteps) {
    throw Error(ErrorKind::kInvalidArgument,
                "the GOAL program would have more than " + std::to_string(kMostGoalSteps) +
                    " steps (sends, receives and local steps); name fewer --nodes");
  }
  out << "num_ranks " << ranks << "\n\n";
  for (int rank = 0; rank < ranks; ++rank) {
    const Schedule schedule = schedules.of(rank);
    out << "rank " << rank << " {\n";
    GoalRank(out, schedule, schedules.element_bytes(), network.gamma).write();
    out << "}\n\n";
  }
}

}  // namespace altorch
