// SPDX-License-Identifier: BSD-3-Clause
#include "trace/trace_board.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/env.h"
#include "base/log.h"
#include "trace/job_watch.h"
#include "trace/metrics.h"
#include "trace/trace_thread.h"

namespace altorch {
namespace {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The call that ended last, which need not be the one that was made last.
void add_calls(GroupReport& group, const std::vector<FlightEntry>& entries) {
  const auto is_on_device = [&](std::uint64_t number) {
    return std::find(group.on_devices.begin(), group.on_devices.end(), number) != group.on_devices.end();
  };
  for (FlightEntry entry : entries) {
    if (entry.group != group.recorded_as) continue;
    if (entry.state == FlightState::kFinished && is_on_device(entry.number)) {
      entry.state = FlightState::kStarted;
      entry.ended_ns = 0;
    }
    if (entry.state >= FlightState::kFinished) {
      if (!group.last_done || entry.ended_ns >= group.last_done->ended_ns) group.last_done = entry;
      continue;
    }
    if (++group.calls_under_way <= GroupReport::kMostCalls) group.under_way.push_back(entry);
  }
}

}  // namespace

TraceBoard::TraceBoard() : process_(getpid()) {}

TraceBoard& TraceBoard::instance() {
  static auto* const board = new TraceBoard();
  return *board;
}

bool TraceBoard::is_wanted() { return setting("ALTORCH_TRACE") != "off"; }

// If the thread that reports cannot be started, the group goes on without it.
void TraceBoard::add(const TraceSource& source) {
  if (getpid() != process_ || !is_wanted()) return;
  const std::lock_guard life(life_mutex_);
  {
    const std::lock_guard lock(mutex_);
    sources_.push_back(&source);
  }
  if (thread_) return;
  try {
    thread_ = std::make_unique<TraceThread>(*this, /*takes_signal=*/setting("ALTORCH_TRACE") == "on");
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, std::string("`altorch trace` will not reach this process: ") + error.what());
  }
}

void TraceBoard::remove(const TraceSource& source) {
  if (getpid() != process_) return;
  const std::lock_guard life(life_mutex_);
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    is_last = sources_.size() == 1 && sources_.front() == &source;
  }
  if (is_last) thread_.reset();  // which writes down what there was (ALTORCH_METRICS)
  const std::lock_guard lock(mutex_);
  std::erase(sources_, &source);
}

void TraceBoard::write_last_metrics() const {
  const std::string file = setting("ALTORCH_METRICS");
  if (getpid() == process_ && is_wanted() && !file.empty()) write_metrics(file, report());
}

void TraceBoard::set_dump(Dump dump) {
  const std::lock_guard lock(mutex_);
  dump_ = dump;
}

void TraceBoard::set_place(Place place) {
  const std::lock_guard lock(mutex_);
  place_ = place;
}

std::string TraceBoard::dump(bool missed) const {
  const std::lock_guard lock(mutex_);
  if (!dump_) return "this torch takes no flight record of altorch's calls";
  for (const TraceSource* source : sources_) {
    if (const auto job = source->report().job) return dump_(job->rank, missed);
  }
  return "no group has been made";
}

ProcessReport TraceBoard::report_with_place() const {
  Place place = nullptr;
  {
    const std::lock_guard lock(mutex_);
    place = place_;
  }
  std::string where = place ? place() : "";  // without the lock: it may take Python's
  ProcessReport report = this->report();
  report.place = std::move(where);
  return report;
}

ProcessReport TraceBoard::report() const {
  ProcessReport report{getpid(), host_name(), now_ns(), {}, {}};
  const std::lock_guard lock(mutex_);
  const FlightRecorder* read = nullptr;
  std::vector<FlightEntry> entries;
  for (const TraceSource* source : sources_) {
    GroupReport group = source->report();
    if (const FlightRecorder* recorder = source->recorder(); recorder && group.recorded_as) {
      if (recorder != read) entries = (read = recorder)->entries();
      if (const auto known = recorder->group(*group.recorded_as)) group.description = known->description;
      add_calls(group, entries);
    }
    report.groups.push_back(std::move(group));
  }
  return report;
}

JobReport job_report(const JobWatch& watch) {
  const LivenessSettings& settings = watch.liveness.settings();
  JobReport job{watch.name, settings.rank, {}, watch.liveness.deaths()};
  const auto own = settings.members.find(settings.rank);
  for (const auto& [rank, member] : settings.members)
    job.members[rank] = {member.pid, own != settings.members.end() && member.node == own->second.node};
  return job;
}

}  // namespace altorch
