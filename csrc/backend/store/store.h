// SPDX-License-Identifier: BSD-3-Clause
// The c10d Store as the engine's KeyValueStore.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "backend/store/store_worker.h"
#include "base/error.h"
#include "rendezvous/key_value_store.h"

namespace altorch::backend {

// No request takes longer than `timeout`, even if the store's host is stopped or gone. Waits poll,
// so that the wait of one thread does not block another thread.
class C10dStore : public KeyValueStore {
 public:
  // The longest time for which a request may keep a waiting thread from its deadline and from a
  // look at its peers.
  static constexpr std::chrono::milliseconds kLook{250};

  // `prefix` must be the group's own within the job: prefixes of `store` itself are left out.
  C10dStore(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
            std::chrono::milliseconds timeout = kLook);

  void set(const std::string& key, const std::string& value) override;
  // Over a Store in Python without compare_set() it takes three requests; if the rank dies between
  // them, the key stays missing.
  void set_once(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool is_hosted() override;

  // Sets the key to `value` if it does not exist, and returns its value then. Uses the connection
  // and the prefixes of `place`. Waits until `timeout`, if the store's host is stopped or a caller
  // blocks on that connection.
  static std::string claim(const c10::intrusive_ptr<c10d::Store>& place, const std::string& key,
                           const std::string& value, std::chrono::milliseconds timeout);

  // The prefixes that stand before the caller's keys in `store`, outermost first, each followed by
  // a slash.
  static std::string prefixes_of(const c10::intrusive_ptr<c10d::Store>& store);

  // The group's keys, to make another store of the job from.
  c10::intrusive_ptr<c10d::Store> c10d() const;
  // The same keys over the caller's own connection, for requests that may block.
  c10::intrusive_ptr<c10d::Store> callers() const;

 private:
  using Values = std::optional<std::vector<std::string>>;
  struct Read : StoreRequest {
    Values values;
  };
  Values read(const std::vector<std::string>& keys);
  // Waits for the request, and throws its error if it has one. `key` is for error messages.
  void finish(const StoreRequest& request, const std::string& key);
  void carry_out(const std::string& key, std::function<void(c10d::Store&)> run);
  std::string full(const std::string& key) const { return prefix_ + "/" + key; }

  const std::string prefix_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<StoreWorker> worker_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Read>> late_;  // reads that were not answered in time, by first key
};

}  // namespace altorch::backend
