// SPDX-License-Identifier: BSD-3-Clause
#include "trace/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <mutex>

#include "platform/descriptor.h"

namespace altorch {
namespace {

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char each : text) {
    if (each == '\\' || each == '"') out += '\\';
    if (each == '\n')
      out += "\\n";
    else
      out += each;
  }
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string labels_of(const GroupReport& group) {
  return "{group=\"" + escaped(group.name) + "\",description=\"" + escaped(group.description) + "\",rank=\"" +
         std::to_string(group.job ? group.job->rank : group.rank) + "\"";
}

double oldest_call(const GroupReport& group, std::int64_t now_ns) {
  std::int64_t oldest = 0;
  for (const FlightEntry& entry : group.under_way) oldest = std::max(oldest, now_ns - entry.issued_ns);
  return static_cast<double>(oldest) / 1e9;
}

void head(std::string& text, const std::string& name, const char* type, const char* help) {
  text += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

using OfRow = std::function<double(const StatisticsRow&)>;
void add_rows(std::string& text, const ProcessReport& report, const std::string& name, const char* help,
              const OfRow& value) {
  head(text, name, "counter", help);
  for (const GroupReport& group : report.groups) {
    for (const StatisticsRow& row : group.statistics)
      text += name + labels_of(group) + ",operation=\"" + name_of(row.kind) + "\",transport=\"" +
              row.transport + "\",route=\"" + escaped(row.route) + "\"} " + number(value(row)) + "\n";
  }
}

using OfGroup = std::function<double(const GroupReport&)>;
void add_groups(std::string& text, const ProcessReport& report, const std::string& name, const char* help,
                const OfGroup& value) {
  head(text, name, "gauge", help);
  for (const GroupReport& group : report.groups) {
    if (!group.made_since_ns) text += name + labels_of(group) + "} " + number(value(group)) + "\n";
  }
}

}  // namespace

std::string as_metrics(const ProcessReport& report) {
  std::string text;
  add_rows(text, report, "altorch_operations_total", "Operations that are done.",
           [](const StatisticsRow& row) { return static_cast<double>(row.count); });
  add_rows(text, report, "altorch_bytes_total", "Bytes of this rank's tensors in them.",
           [](const StatisticsRow& row) { return static_cast<double>(row.bytes); });
  add_rows(text, report, "altorch_seconds_total", "Seconds from their start to their end; they may overlap.",
           [](const StatisticsRow& row) { return std::chrono::duration<double>(row.time).count(); });
  add_groups(text, report, "altorch_calls_under_way", "Calls that are under way or queued.",
             [](const GroupReport& group) { return static_cast<double>(group.calls_under_way); });
  add_groups(text, report, "altorch_oldest_call_seconds", "Age of the oldest of them.",
             [&](const GroupReport& group) { return oldest_call(group, report.now_ns); });
  add_groups(text, report, "altorch_group_closed", "1: the group takes no calls any more.",
             [](const GroupReport& group) { return group.closed.empty() ? 0.0 : 1.0; });
  add_groups(text, report, "altorch_lost_ranks", "Ranks of the job that are known to be dead.",
             [](const GroupReport& group) {
               return group.job ? static_cast<double>(group.job->deaths.size()) : 0.0;
             });
  return text;
}

std::string metrics_file(const std::string& file, int rank) {
  const auto slash = file.rfind('/');
  const auto dot = file.rfind('.');
  const bool has_extension =
      dot != std::string::npos && (slash == std::string::npos || dot > slash + 1) && dot > 0;
  const auto at = has_extension ? dot : file.size();
  return file.substr(0, at) + "." + std::to_string(rank) + file.substr(at);
}

bool write_metrics(const std::string& file, const ProcessReport& report) {
  const auto known = std::find_if(report.groups.begin(), report.groups.end(),
                                  [](const GroupReport& group) { return group.job.has_value(); });
  if (known == report.groups.end()) return true;  // its first group is being made
  const std::string target = metrics_file(file, known->job->rank);
  const std::string beside = target + "." + std::to_string(report.pid) + ".new";
  static std::mutex one_at_a_time;  // the trace thread, and at exit another
  const std::lock_guard lock(one_at_a_time);
  // The folder may be one that others write to: no file of theirs, and nothing that a link of
  // theirs names, is written.
  unlink(beside.c_str());
  const Descriptor out(open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (*out < 0) return false;
  if (write_all(*out, as_metrics(report)) && std::rename(beside.c_str(), target.c_str()) == 0) return true;
  unlink(beside.c_str());
  return false;
}

}  // namespace altorch
