// SPDX-License-Identifier: BSD-3-Clause
// A report in JSON and in words.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/says.h"
#include "trace/metrics.h"
#include "trace/report_json.h"
#include "trace/report_text.h"

namespace altorch {
namespace {

FlightEntry call(OpKind kind, FlightState state, std::int64_t since_ns) {
  FlightEntry entry;
  entry.kind = kind;
  entry.state = state;
  entry.dtype = DType::kFloat32;
  entry.sequence = 7;
  entry.input = entry.output = 1 << 18;
  entry.issued_ns = since_ns;
  entry.timeout_ms = 30'000;
  entry.thread = 4711;
  return entry;
}

ProcessReport report_of(GroupReport group) {
  ProcessReport report{123, "here", 20'000'000'000, "", {}};
  report.groups.push_back(std::move(group));
  return report;
}

GroupReport group_in_a_call() {
  GroupReport group;
  group.name = "0";
  group.key = "key";
  group.description = "default_pg";
  group.rank = 1;
  group.global_ranks = {0, 1};
  group.transport = "shm";
  group.recorded_as = 1;
  group.job = JobReport{"job", 1, {{0, {77, true}}, {1, {123, true}}}, {{0, "process 77 has ended"}}};
  group.under_way = {call(OpKind::kAllReduce, FlightState::kStarted, 8'000'000'000)};
  group.calls_under_way = 1;
  group.last_done = call(OpKind::kBroadcast, FlightState::kFinished, 6'000'000'000);
  group.last_done->ended_ns = 7'000'000'000;
  group.last_done->sequence = 6;
  return group;
}

TEST(TraceReport, SaysInWordsWhatAGroupIsAt) {
  const std::string text = as_text(report_of(group_in_a_call()));
  EXPECT_TRUE(says(text, "process 123, global rank 1 of 2; global rank 0 is lost: process 77 has ended"))
      << text;
  EXPECT_TRUE(says(text,
                   "group '0' (default_pg), rank 1 of 2, over shm: in all_reduce #7 (float32, 1 MiB) for "
                   "12.0 s, its timeout comes in 18.0 s, called by thread 4711; last was broadcast #6 "
                   "(float32, 1 MiB), done 13.0 s ago"))
      << text;
}

TEST(TraceReport, SaysInWordsWhyAGroupIsInNoCall) {
  GroupReport group;
  group.name = "dp";
  group.global_ranks = {0};
  const auto says_of = [](const GroupReport& one, const char* words) {
    const std::string text = as_text(report_of(one));
    EXPECT_TRUE(says(text, words)) << text;
  };
  says_of(group, "its calls are not recorded");
  group.recorded_as = 1;
  says_of(group, "in no call");
  group.closed = "a peer is lost";
  says_of(group, "takes no calls: a peer is lost");
  group.made_since_ns = 15'000'000'000;
  says_of(group, "waits for its ranks to meet, for 5.0 s");
}

TEST(TraceReport, NamesBothEndsOfMessagesAndWindows) {
  GroupReport group = group_in_a_call();
  FlightEntry message = call(OpKind::kReceive, FlightState::kStarted, 0);
  message.message = 1;
  message.root = -1;
  message.tag = 5;
  FlightEntry access = call(OpKind::kOneSided, FlightState::kStarted, 0);
  access.access = "wait for a signal of";
  access.tag = 3;
  access.root = 1;
  group.under_way = {message, access};
  group.calls_under_way = 40;
  const std::string text = as_text(report_of(group));
  EXPECT_TRUE(says(text, "recv from any rank, tag 5")) << text;
  EXPECT_TRUE(says(text, "window 3: wait for a signal of rank 1")) << text;
  EXPECT_TRUE(says(text, "and 38 more")) << text;
  const std::string json = as_json(report_of(group));
  EXPECT_TRUE(says(json, R"("peer": -1, "tag": 5)")) << json;
  EXPECT_TRUE(says(json, R"("access": "wait for a signal of", "window": 3, "peer": 1)")) << json;
}

TEST(TraceReport, IsWhatPrometheusReads) {
  GroupReport group = group_in_a_call();
  group.description = "a \"quoted\"\nname";
  group.statistics = {{OpKind::kAllReduce, "shm", "one_shot", 6, 96, std::chrono::milliseconds(1500)}};
  const std::string text = as_metrics(report_of(group));
  const std::string labels = R"({group="0",description="a \"quoted\"\nname",rank="1")";
  const std::string row = labels + R"(,operation="all_reduce",transport="shm",route="one_shot"} )";
  for (const std::string& line :
       {"# TYPE altorch_operations_total counter\naltorch_operations_total" + row + "6\n",
        "altorch_bytes_total" + row + "96\n", "altorch_seconds_total" + row + "1.5\n",
        "altorch_calls_under_way" + labels + "} 1\n", "altorch_oldest_call_seconds" + labels + "} 12\n",
        "altorch_group_closed" + labels + "} 0\n", "altorch_lost_ranks" + labels + "} 1\n"})
    EXPECT_TRUE(says(text, line)) << line << text;
  EXPECT_EQ(metrics_file("/a/al.prom", 3), "/a/al.3.prom");
  EXPECT_EQ(metrics_file("/a.d/al", 3), "/a.d/al.3");
  EXPECT_EQ(metrics_file("/a/.hidden", 3), "/a/.hidden.3");
}

TEST(TraceReport, IsJson) {
  const std::string json = as_json(report_of(group_in_a_call()));
  for (
      const char* piece :
      {R"({"altorch_trace": 1, "pid": 123, "host": "here", "now_ns": 20000000000, "place": ")",
       R"("groups": [{"name": "0")", R"("global_ranks": [0, 1], "transport": "shm")",
       R"("members": {"0": {"pid": 77, "near": true}, "1": {"pid": 123, "near": true}})",
       R"("deaths": {"0": "process 77 has ended"}})",
       R"("under_way": [{"operation": "all_reduce", "state": "under way", "sequence": 7, "dtype": "float32")",
       R"("last_done": {"operation": "broadcast", "state": "done", "sequence": 6, "root": 0)"})
    EXPECT_TRUE(says(json, piece)) << piece << "\n" << json;
  EXPECT_EQ(json.back(), '\n');
  EXPECT_EQ(quoted_json("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\u000a\\u0001\"");
}

// A folder of ALTORCH_METRICS may be one that other users write to.
TEST(Metrics, WritesNothingThatALinkNames) {
  const std::string folder = testing::TempDir() + "metrics" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const std::string others = folder + "/others", file = folder + "/al.prom";
  std::ofstream(others) << "theirs";
  std::filesystem::create_symlink(others, folder + "/al.1.prom.123.new");
  EXPECT_TRUE(write_metrics(file, report_of(group_in_a_call())));
  std::string text;
  std::getline(std::ifstream(others), text);
  EXPECT_EQ(text, "theirs");
  EXPECT_GT(std::filesystem::file_size(folder + "/al.1.prom"), 100u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace altorch
