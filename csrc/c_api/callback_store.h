// SPDX-License-Identifier: BSD-3-Clause
// A KeyValueStore over the functions of an altorch_store.
#pragma once

#include <string>

#include "c_api/c_api.h"
#include "rendezvous/key_value_store.h"

namespace altorch {

// Thread rules: any thread, as the functions allow.
class CallbackStore : public KeyValueStore {
 public:
  // `prefix` stands before each key. `store` outlives stop().
  CallbackStore(const altorch_store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override;
  void set_once(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool is_hosted() override;

  // Every later request of the process throws Error(kClosed). Returns when none is under way.
  static void stop();

 private:
  template <typename Request>
  void ask(const std::string& key, Request&& request);

  const altorch_store& store_;
  const std::string prefix_;
};

}  // namespace altorch
