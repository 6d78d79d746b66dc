// SPDX-License-Identifier: BSD-3-Clause
// A KeyValueStore that passes everything on to another one; its children change what they need to.
#pragma once

#include "rendezvous/key_value_store.h"

namespace altorch {

class StoreView : public KeyValueStore {
 public:
  // `store` must outlive it.
  explicit StoreView(KeyValueStore& store) : store_(store) {}

  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  void set_once(const std::string& key, const std::string& value) override { store_.set_once(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_.get(key, timeout);
  }
  std::optional<std::string> try_get(const std::string& key) override { return store_.try_get(key); }
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override {
    return store_.multi_get(keys);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_.add(key, amount); }
  bool is_hosted() override { return store_.is_hosted(); }
  void check_peers() override { store_.check_peers(); }

 private:
  KeyValueStore& store_;
};

// The keys of another store that begin with `prefix`.
class PrefixView : public StoreView {
 public:
  PrefixView(KeyValueStore& store, std::string prefix) : StoreView(store), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override {
    StoreView::set(prefix_ + key, value);
  }
  void set_once(const std::string& key, const std::string& value) override {
    StoreView::set_once(prefix_ + key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return StoreView::get(prefix_ + key, timeout);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    return StoreView::try_get(prefix_ + key);
  }
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override {
    std::vector<std::string> full;
    for (const std::string& key : keys) full.push_back(prefix_ + key);
    return StoreView::multi_get(full);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return StoreView::add(prefix_ + key, amount);
  }

 private:
  const std::string prefix_;
};

}  // namespace altorch
