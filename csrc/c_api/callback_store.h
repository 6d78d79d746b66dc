// SPDX-License-Identifier: BSD-3-Clause
// A KeyValueStore over the functions of an altorch_store, which one thread of the process calls: a
// store that does not answer keeps no caller longer than kAnswer, and a signal handler of the
// program never runs inside of such a function.
#pragma once

#include <functional>
#include <string>

#include "c_api/c_api.h"
#include "rendezvous/key_value_store.h"

namespace altorch {

// Thread rules: any thread.
class CallbackStore : public KeyValueStore {
 public:
  static constexpr std::chrono::milliseconds kAnswer{2000};

  // `prefix` stands before each key. `store` lives as long as the process.
  CallbackStore(const altorch_store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override;
  void set_once(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool is_hosted() override;

  // Every later request of the process throws Error(kClosed). Waits for the one under way, at most
  // kAnswer.
  static void stop();

 private:
  // Has the thread run `request` with the full key, and waits for it. `request` owns what it needs:
  // it may outlive the call.
  void ask(const std::string& key, std::function<int(const char*)> request);

  const altorch_store& store_;
  const std::string prefix_;
};

}  // namespace altorch
