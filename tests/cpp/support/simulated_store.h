// SPDX-License-Identifier: BSD-3-Clause
// A store that all simulated ranks ask, and that answers one request after another, each in its
// time; it counts by rank.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "support/map_store.h"
#include "support/simulated_time.h"

namespace altorch {

// Numbers of ranks. ThreadSanitizer takes minutes for thousands, and has one thread to look at.
inline std::vector<int> scales() {
#if defined(__SANITIZE_THREAD__)
  return {2, 64};
#else
  return {2, 64, 512, 4096};
#endif
}

class SimulatedStore : public MapStore {
 public:
  struct Asked {
    int writes = 0, reads = 0, polls = 0;  // polls: that found nothing
    std::int64_t bytes = 0;                // of keys and values, both ways
    int requests() const { return writes + reads + polls; }
    Asked& operator+=(const Asked& other) {
      writes += other.writes, reads += other.reads, polls += other.polls, bytes += other.bytes;
      return *this;
    }
  };

  explicit SimulatedStore(SimulatedTime& time)
      : time_(time), asked_(static_cast<std::size_t>(time.ranks())) {}

  const Asked& of(int rank) const { return asked_[static_cast<std::size_t>(rank)]; }
  Asked in_all() const {
    Asked all;
    for (const Asked& each : asked_) all += each;
    return all;
  }
  // Of the rank that asks most, without rank 0.
  int most() const {
    int most = 0;
    for (std::size_t rank = 1; rank < asked_.size(); ++rank) most = std::max(most, asked_[rank].requests());
    return most;
  }
  // Not a rank's question.
  std::optional<std::string> value(const std::string& key) { return MapStore::try_get(key); }
  // For the table in docs/reliability/scale.md: ALTORCH_TEST_FIGURES=1.
  void tell(const char* what) const {
    if (!std::getenv("ALTORCH_TEST_FIGURES")) return;
    const Asked all = in_all();
    std::printf("%s: %zu ranks, %d requests in all, %d of rank 0, %d of another, %.1f MB\n", what,
                asked_.size(), all.requests(), of(0).requests(), most(),
                static_cast<double>(all.bytes) / 1e6);
  }

  void set(const std::string& key, const std::string& value) override {
    serve(key.size() + value.size());
    ++own().writes;
    MapStore::set(key, value);
  }
  void set_once(const std::string& key, const std::string& value) override {
    serve(key.size() + value.size());
    ++own().writes;
    MapStore::set_once(key, value);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    serve(key.size());
    auto value = MapStore::try_get(key);
    ++(value ? own().reads : own().polls);
    if (value) own().bytes += static_cast<std::int64_t>(value->size());
    return value;
  }
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override {
    std::size_t bytes = 0;
    for (const std::string& key : keys) bytes += key.size();
    serve(bytes);
    ++own().reads;
    auto values = MapStore::multi_get(keys);
    for (const std::string& value : values.value_or(std::vector<std::string>()))
      own().bytes += static_cast<std::int64_t>(value.size());
    return values;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    serve(key.size());
    ++own().writes;
    return MapStore::add(key, amount);
  }

 private:
  Asked& own() { return asked_[static_cast<std::size_t>(time_.rank())]; }
  // After all that came before it.
  void serve(std::size_t bytes) {
    own().bytes += static_cast<std::int64_t>(bytes);
    time_.meet_the_others();
    const auto now = WaitClock::now();
    idle_ = std::max(idle_, now) + std::chrono::microseconds(20);
    WaitClock::sleep_for(idle_ - now);
  }

  SimulatedTime& time_;
  std::vector<Asked> asked_;
  WaitClock::time_point idle_{};
};

}  // namespace altorch
