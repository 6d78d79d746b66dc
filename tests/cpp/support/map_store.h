// SPDX-License-Identifier: BSD-3-Clause
// A KeyValueStore in memory, shared by ranks that are threads.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.h"
#include "rendezvous/key_value_store.h"

namespace altorch {

class MapStore : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  void set_once(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_.try_emplace(key, value);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (std::chrono::steady_clock::now() < deadline) {
      if (auto value = try_get(key)) return *value;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw Error(ErrorKind::kTimeout, "no key " + key);
  }
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> found;
    for (const std::string& key : keys) {
      const auto entry = values_.find(key);
      if (entry == values_.end()) return std::nullopt;
      found.push_back(entry->second);
    }
    return found;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::lock_guard lock(mutex_);
    auto& value = values_[key];
    value = std::to_string((value.empty() ? 0 : std::stoll(value)) + amount);
    return std::stoll(value);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
};

}  // namespace altorch
