// SPDX-License-Identifier: BSD-3-Clause
// What a process reports when it is asked from outside (`altorch trace`, SIGUSR1): plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace/flight_recorder.h"
#include "trace/statistics.h"

namespace altorch {

// The ranks that watch each other, as one of them knows them.
struct JobReport {
  std::string name;  // the same on all of them, and unique to them
  int rank = 0;      // of this process
  struct Member {
    long pid = 0;       // as its own node numbers it
    bool near = false;  // this process sees it under that number
  };
  std::map<int, Member> members = {};
  std::map<int, std::string> deaths = {};  // with the evidence
};

struct GroupReport {
  std::string name, key;  // `key`: the same on all its ranks, and no other group's; empty while it is made
  std::string description = {};
  int rank = 0;                        // of this process in the group
  std::vector<int> global_ranks = {};  // by rank
  std::string transport = {};
  std::int64_t timeout_ms = 0;      // that it was made with; calls have their own
  std::uint64_t sequence = 0;       // of the collective on CPU tensors that was numbered last
  std::uint64_t cuda_sequence = 0;  // of the one on CUDA tensors
  std::uint64_t calls = 0;          // collectives of both kinds
  std::string closed = {};          // why it takes no calls; empty: it does
  std::int64_t made_since_ns = 0;   // since when the group is being made; 0: it is made
  std::string meets_at = {};        // where: MASTER_ADDR and MASTER_PORT
  std::optional<JobReport> job = {};
  std::vector<std::uint64_t> on_devices =
      {};  // FlightEntry::number of calls that the host is done with, but no device

  std::vector<StatisticsRow> statistics = {};

  std::optional<std::uint64_t> recorded_as = {};  // FlightGroup::id; none: its calls are not recorded
  // The flight recorder fills in the following fields. Calls are in their order; those beyond
  // kMostCalls are only counted.
  std::vector<FlightEntry> under_way = {};
  std::uint64_t calls_under_way = 0;
  std::optional<FlightEntry> last_done = {};  // or failed

  static constexpr std::size_t kMostCalls = 32;
};

struct ProcessReport {
  long pid = 0;
  std::string host;
  std::int64_t now_ns = 0;  // since the epoch, as all times here
  // Where the main thread is in the program, "train.py:88 in load"; empty: not asked for, or not
  // known.
  std::string place = {};
  std::vector<GroupReport> groups;
};

}  // namespace altorch
