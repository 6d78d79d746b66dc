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

// No request takes longer than `patience`, whatever has become of the store's host. Waits poll, so that one
// thread's wait does not stop another's.
class C10dStore : public KeyValueStore {
 public:
  // As long as somebody who waits for something else may be kept from his deadline and from his peers.
  static constexpr std::chrono::milliseconds kLook{250};

  // `prefix` must be the group's own within the job: prefixes of `store` itself are left out.
  C10dStore(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
            std::chrono::milliseconds patience = kLook);

  void set(const std::string& key, const std::string& value) override;
  // Not atomic over a Store in Python that has no compare_set(): two requests then.
  void set_once(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool is_hosted() override;

  // Writes `value` where nothing is, and returns what is there then, over the connection and under the prefixes of `place`. Waits
  // until `timeout`, for a host that is stopped or a caller who blocks there.
  static std::string claim(const c10::intrusive_ptr<c10d::Store>& place, const std::string& key,
                           const std::string& value, std::chrono::milliseconds timeout);

  // For another store of the job.
  c10::intrusive_ptr<c10d::Store> c10d() const;
  // The same keys over the connection that we were given, for who may block there.
  c10::intrusive_ptr<c10d::Store> callers() const;

 private:
  using Values = std::optional<std::vector<std::string>>;
  struct Read : StoreRequest {
    Values values;
  };
  Values read(const std::vector<std::string>& keys);
  // Waits for it, and throws what became of it. `key` is for messages.
  void finish(const StoreRequest& request, const std::string& key);
  void carry_out(const std::string& key, std::function<void(c10d::Store&)> run);
  std::string full(const std::string& key) const { return prefix_ + "/" + key; }

  const std::string prefix_;
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<StoreWorker> worker_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Read>> late_;  // by first key: asked, and not answered in time
};

}  // namespace altorch::backend
