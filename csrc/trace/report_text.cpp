// SPDX-License-Identifier: BSD-3-Clause
#include "trace/report_text.h"

#include <cstdio>

#include "trace/call_text.h"

namespace altorch {
namespace {

std::string seconds(std::int64_t nanoseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(nanoseconds) / 1e9);
  return text;
}

std::string title(const GroupReport& group) {
  std::string text = "group '" + group.name + "'";
  if (!group.description.empty() && group.description != "undefined") text += " (" + group.description + ")";
  text += ", rank " + std::to_string(group.rank) + " of " + std::to_string(group.global_ranks.size());
  if (!group.transport.empty()) text += ", over " + group.transport;
  return text;
}

std::string in_call(const FlightEntry& entry, std::int64_t now_ns) {
  std::string text = entry.state == FlightState::kIssued ? "has queued " : "in ";
  text += text_of(entry) + " for " + seconds(now_ns - entry.issued_ns);
  const std::int64_t left = entry.issued_ns + entry.timeout_ms * 1'000'000 - now_ns;
  text +=
      left > 0 ? ", its timeout comes in " + seconds(left) : ", its timeout was " + seconds(-left) + " ago";
  return text + ", called by thread " + std::to_string(entry.thread);
}

}  // namespace

std::string state_of(const GroupReport& group, std::int64_t now_ns) {
  if (group.made_since_ns) return "waits for its ranks to meet, for " + seconds(now_ns - group.made_since_ns);
  if (!group.closed.empty()) return "takes no calls: " + group.closed;
  if (!group.recorded_as) return "its calls are not recorded";
  std::string text = "in no call";
  for (const FlightEntry& entry : group.under_way)
    text = (&entry == group.under_way.data() ? "" : text + "; ") + in_call(entry, now_ns);
  if (group.calls_under_way > group.under_way.size())
    text += "; and " + std::to_string(group.calls_under_way - group.under_way.size()) + " more";
  if (const auto& last = group.last_done) {
    text += "; last was " + text_of(*last) + (last->state == FlightState::kFailed ? ", failed " : ", done ");
    text += seconds(now_ns - last->ended_ns) + " ago";
  }
  return text;
}

std::string as_text(const ProcessReport& report) {
  std::string text = "altorch: process " + std::to_string(report.pid);
  for (const GroupReport& group : report.groups) {
    if (!group.job) continue;
    text += ", global rank " + std::to_string(group.job->rank) + " of " +
            std::to_string(group.job->members.size());
    for (const auto& [rank, evidence] : group.job->deaths)
      text += "; global rank " + std::to_string(rank) + " is lost: " + evidence;
    break;
  }
  if (!report.place.empty()) text += "; the program is at " + report.place;
  text += "\n";
  for (const GroupReport& group : report.groups)
    text += "  " + title(group) + ": " + state_of(group, report.now_ns) + "\n";
  return text;
}

}  // namespace altorch
