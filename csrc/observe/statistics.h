// What a group has done: operations by kind and route, for the table at the end of a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "common/op_kind.h"

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
class Statistics {
 public:
  void add(OpKind kind, const char* transport, std::string_view route, std::int64_t bytes,
           std::chrono::nanoseconds time) {
    const std::lock_guard lock(mutex_);
    for (StatisticsRow& row : rows_) {
      if (row.kind != kind || row.route.data() != route.data()) continue;
      ++row.count;
      row.bytes += static_cast<std::uint64_t>(bytes);
      row.time += time;
      return;
    }
    rows_.push_back({kind, transport, route, 1, static_cast<std::uint64_t>(bytes), time});
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
