// SPDX-License-Identifier: BSD-3-Clause
// The deaths of a job, as a numbered list in the store: "deaths" counts, "death/<n>" holds a rank.
// A rank that notices a death adds it, unless two others have. A waiting rank polls the counter
// only. Thread rules: one thread at a time.
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

  // Adds the rank unless two others have (the first may die while it reports), so that it may be in
  // the list twice. Waits until 200 ms after `noticed` first (by default: does not wait): then
  // KeyValueStore::is_hosted() can tell whether the dead process hosted the store. If it did, this
  // and all later calls do nothing: the ranks of this node know of the death anyway. Never throws.
  void add(int rank, Clock::time_point noticed = {}) noexcept;
  // The ranks that were added since the last call.
  std::vector<int> take_new() noexcept;

 private:
  const std::shared_ptr<KeyValueStore> store_;
  bool is_gone_ = false;  // the process that hosts the store is gone
  std::int64_t heard_ = 0;
  int missed_ = 0;  // reads that did not find all counted entries
};

}  // namespace altorch
