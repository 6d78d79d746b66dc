// SPDX-License-Identifier: BSD-3-Clause
#include "trace/late_ranks.h"

#include <map>

#include "base/wait_clock.h"
#include "trace/ask_process.h"
#include "trace/far_ranks.h"
#include "trace/report_text.h"
#include "trace/trace_board.h"

namespace altorch {
namespace {

constexpr std::size_t kMostAsked = 4;                   // of this node, and of others
constexpr std::chrono::milliseconds kNodeTimeout{500};  // with all of this node
constexpr std::chrono::milliseconds kFarTimeout{1000};

}  // namespace

// A rank that waits in another group may wait there for the ranks that wait here, so that call is
// reported, too.
std::string late_answer(const ProcessReport& report, std::string_view key) {
  const std::string place = report.place.empty() ? "" : "; its program is at " + report.place;
  std::string here = "not in this group any more", elsewhere;
  for (const GroupReport& group : report.groups) {
    if (group.key == key) {
      here = state_of(group, report.now_ns);
      if (!group.under_way.empty()) return here + place;
    } else if (!group.under_way.empty() && elsewhere.empty()) {
      elsewhere = "; in group '" + group.name + "' it is " + state_of(group, report.now_ns);
    }
  }
  return here + elsewhere + place;
}

// Ranks of other nodes have time to answer while the ranks of this node are asked.
std::string text_of_late_ranks(const JobWatch& watch, std::string_view key, std::span<const int> late,
                               std::span<const int> global_ranks) {
  const JobReport job = job_report(watch);
  const auto began = WaitClock::now();
  std::map<int, long> near;  // by rank in the group
  FarRanks far(watch, std::string(key), kMostAsked, began + kFarTimeout);
  for (const int rank : late) {
    const auto member = job.members.find(global_ranks[static_cast<std::size_t>(rank)]);
    if (member == job.members.end() || member->first == job.rank) continue;
    if (!member->second.near)
      far.ask(rank, member->first);
    else if (near.size() < kMostAsked)
      near[rank] = member->second.pid;
  }
  std::map<int, std::string> texts;
  for (const auto& [rank, pid] : near) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(began + kNodeTimeout - WaitClock::now());
    if (left.count() <= 0) break;
    if (auto answer = late_text_of_process(pid, key, left)) texts[rank] = *std::move(answer);
  }
  far.hear(texts);
  std::string text;
  for (const auto& [rank, answer] : texts) text += "; rank " + std::to_string(rank) + ": " + answer;
  return text;
}

}  // namespace altorch
