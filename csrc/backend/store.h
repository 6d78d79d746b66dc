// The c10d Store as the engine's KeyValueStore.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "common/error.h"
#include "common/key_value_store.h"

namespace altorch::backend {

// All groups of a job share one clone of its store, a connection of its own: somebody else's blocking get on
// the original does not stop us. One, because a clone looks host names up, which takes seconds on a machine
// without a name server. Waits poll, so that one thread's wait does not stop another's.
class C10dStore : public KeyValueStore {
 public:
  // `prefix` must be the group's own within the job: prefixes of `store` itself are left out.
  C10dStore(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  void remove(const std::string& key) override;

  // For another store of the job.
  const c10::intrusive_ptr<c10d::Store>& c10d() const { return store_; }

 private:
  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace altorch::backend
