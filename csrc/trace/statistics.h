// SPDX-License-Identifier: BSD-3-Clause
// What a group has done: operations by kind and route, for the table at the end of a run.
#pragma once

#include <mutex>
#include <vector>

#include "trace/observer.h"

namespace altorch {

struct StatisticsRow {
  OpKind kind;
  const char* transport;
  std::string_view route;  // algorithm, "native" or "message"
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds time{0};  // from start to completion
};

// Thread rules: any thread.
class Statistics : public Observer {
 public:
  void finished(const ObservedCall& call, const char* transport, std::string_view route,
                std::chrono::nanoseconds took) override {
    const OpKind kind = call.call.kind;
    const auto bytes = static_cast<std::uint64_t>(call.bytes);
    const std::lock_guard lock(mutex_);
    for (StatisticsRow& row : rows_) {
      if (row.kind != kind || row.route.data() != route.data()) continue;
      ++row.count;
      row.bytes += bytes;
      row.time += took;
      return;
    }
    rows_.push_back({kind, transport, route, 1, bytes, took});
  }
  std::vector<StatisticsRow> rows() const {
    const std::lock_guard lock(mutex_);
    return rows_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<StatisticsRow> rows_;
};

}  // namespace altorch
