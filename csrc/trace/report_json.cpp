// SPDX-License-Identifier: BSD-3-Clause
#include "trace/report_json.h"

#include <algorithm>
#include <concepts>
#include <cstdio>
#include <utility>

#include "trace/call_text.h"

namespace altorch {
namespace {

// An object or a list, one piece after another.
class Writer {
 public:
  Writer(std::string& text, char end) : text_(text), end_(end) { text_ += end == '}' ? '{' : '['; }
  ~Writer() { text_ += end_; }
  Writer(const Writer&) = delete;

  Writer& item() {
    if (!std::exchange(first_, false)) text_ += ", ";
    return *this;
  }
  Writer& key(std::string_view name) {
    item();
    text_ += quoted_json(name) + ": ";
    return *this;
  }
  void value(std::string_view text) { text_ += quoted_json(text); }
  void value(std::integral auto number) { text_ += std::to_string(number); }
  void flag(bool is) { text_ += is ? "true" : "false"; }
  std::string& text() { return text_; }

 private:
  std::string& text_;
  const char end_;
  bool first_ = true;
};

const char* word_of(FlightState state) {
  constexpr const char* names[] = {"queued", "under way", "done", "failed"};
  return names[static_cast<int>(state)];
}

void write(std::string& text, const FlightEntry& entry) {
  Writer call(text, '}');
  call.key("operation").value(name_of(entry.kind));
  call.key("state").value(word_of(entry.state));
  if (entry.message) {
    call.key("message").value(entry.message);
    call.key("peer").value(entry.root);
    call.key("tag").value(entry.tag);
  } else if (entry.access) {
    call.key("access").value(entry.access);
    call.key("window").value(entry.tag);
    if (entry.root >= 0) call.key("peer").value(entry.root);
  } else {
    call.key("sequence").value(entry.sequence);
    if (is_rooted(entry.kind)) call.key("root").value(entry.root);
  }
  if (entry.on_gpu) call.key("on_gpu").flag(true);
  if (const auto bytes = bytes_of(entry)) {
    call.key("dtype").value(name_of(entry.dtype));
    call.key("bytes").value(*bytes);
  }
  call.key("since_ns").value(entry.issued_ns);
  if (entry.ended_ns) call.key("ended_ns").value(entry.ended_ns);
  call.key("timeout_ms").value(entry.timeout_ms);
  call.key("thread").value(entry.thread);
}

void write(std::string& text, const StatisticsRow& row) {
  Writer one(text, '}');
  one.key("operation").value(name_of(row.kind));
  one.key("transport").value(row.transport);
  one.key("route").value(row.route);
  one.key("count").value(row.count);
  one.key("bytes").value(row.bytes);
  one.key("took_ns").value(row.time.count());
}

void write(std::string& text, const JobReport& job) {
  Writer all(text, '}');
  all.key("name").value(job.name);
  all.key("rank").value(job.rank);
  all.key("members");
  {
    Writer members(text, '}');
    for (const auto& [rank, member] : job.members) {
      members.key(std::to_string(rank));
      Writer one(text, '}');
      one.key("pid").value(member.pid);
      one.key("near").flag(member.near);
    }
  }
  all.key("deaths");
  Writer deaths(text, '}');
  for (const auto& [rank, evidence] : job.deaths) deaths.key(std::to_string(rank)).value(evidence);
}

void write(std::string& text, const GroupReport& group) {
  Writer all(text, '}');
  all.key("name").value(group.name);
  all.key("description").value(group.description);
  all.key("key").value(group.key);
  all.key("rank").value(group.rank);
  all.key("global_ranks");
  {
    Writer ranks(text, ']');
    for (const int rank : group.global_ranks) ranks.item().value(rank);
  }
  all.key("transport").value(group.transport);
  all.key("timeout_ms").value(group.timeout_ms);
  all.key("sequence").value(group.sequence);
  all.key("cuda_sequence").value(group.cuda_sequence);
  all.key("calls").value(group.calls);
  all.key("closed").value(group.closed);
  if (group.made_since_ns) all.key("made_since_ns").value(group.made_since_ns);
  if (!group.meets_at.empty()) all.key("meets_at").value(group.meets_at);
  if (group.job) write(all.key("job").text(), *group.job);
  all.key("recorded").flag(group.recorded_as.has_value());
  all.key("calls_under_way").value(group.calls_under_way);
  all.key("under_way");
  {
    Writer calls(text, ']');
    for (const FlightEntry& entry : group.under_way) write(calls.item().text(), entry);
  }
  all.key("statistics");
  {
    Writer rows(text, ']');
    for (const StatisticsRow& row : group.statistics) write(rows.item().text(), row);
  }
  if (group.last_done) write(all.key("last_done").text(), *group.last_done);
}

}  // namespace

// Bytes that are not ASCII are copied as they are: names of groups are UTF-8, and other encodings
// are unsupported.
std::string quoted_json(std::string_view text) {
  const auto is_special = [](char each) {
    return each == '"' || each == '\\' || static_cast<unsigned char>(each) < 0x20;
  };
  std::string quoted = "\"";
  while (true) {
    const auto special = std::find_if(text.begin(), text.end(), is_special);
    quoted.append(text.begin(), special);
    if (special == text.end()) return quoted += '"';
    char escaped[8] = {'\\', *special};
    if (static_cast<unsigned char>(*special) < 0x20)
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(*special));
    quoted += escaped;
    text.remove_prefix(static_cast<std::size_t>(special - text.begin()) + 1);
  }
}

std::string as_json(const ProcessReport& report) {
  std::string text;
  {
    Writer all(text, '}');
    all.key("altorch_trace").value(1);
    all.key("pid").value(report.pid);
    all.key("host").value(report.host);
    all.key("now_ns").value(report.now_ns);
    all.key("place").value(report.place);
    all.key("groups");
    Writer groups(text, ']');
    for (const GroupReport& group : report.groups) write(groups.item().text(), group);
  }
  return text += '\n';
}

}  // namespace altorch
