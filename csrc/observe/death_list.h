// The deaths of a job, as a numbered list in the store: "deaths" counts, "death/<n>" holds a rank. Who sees a
// death puts it there, unless two others have; who waits asks for the counter alone. Thread rules: one thread.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "common/key_value_store.h"

namespace altorch {

class DeathList {
 public:
  explicit DeathList(std::shared_ptr<KeyValueStore> store) : store_(std::move(store)) {}

  // Never throws: the store may have died with its host, and then local ranks know all the same. May take 50 ms.
  void add(int rank) noexcept;
  // The ranks that were added since the last call.
  std::vector<int> news() noexcept;

 private:
  const std::shared_ptr<KeyValueStore> store_;
  bool is_gone_ = false;  // the process that hosts it
  std::chrono::steady_clock::time_point added_{};
  std::int64_t heard_ = 0;
  int missed_ = 0;  // looks at entries that were counted, and not all there
};

}  // namespace altorch
