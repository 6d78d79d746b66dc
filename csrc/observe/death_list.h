// SPDX-License-Identifier: BSD-3-Clause
// The deaths of a job, as a numbered list in the store: "deaths" counts, "death/<n>" holds a rank. Who sees a
// death puts it there, unless two others have; who waits asks for the counter alone. Thread rules: one thread.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "rendezvous/key_value_store.h"

namespace altorch {

class DeathList {
 public:
  using Clock = std::chrono::steady_clock;

  explicit DeathList(std::shared_ptr<KeyValueStore> store) : store_(std::move(store)) {}

  // Waits until 50 ms after the death was noticed. Never throws: the store may have died with its host, and then local ranks
  // know all the same.
  void add(int rank, Clock::time_point noticed = {}) noexcept;
  // The ranks that were added since the last call.
  std::vector<int> news() noexcept;

 private:
  const std::shared_ptr<KeyValueStore> store_;
  bool is_gone_ = false;  // the process that hosts it
  std::int64_t heard_ = 0;
  int missed_ = 0;  // looks at entries that were counted, and not all there
};

}  // namespace altorch
