// SPDX-License-Identifier: BSD-3-Clause
// Counts what one rank asks of a store that all ranks share.
#pragma once

#include "rendezvous/store_view.h"

namespace altorch {

class CountingStore : public StoreView {
 public:
  using StoreView::StoreView;
  void set(const std::string& key, const std::string& value) override {
    ++writes;
    StoreView::set(key, value);
  }
  void set_once(const std::string& key, const std::string& value) override {
    ++writes;
    StoreView::set_once(key, value);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    auto value = StoreView::try_get(key);
    ++(value ? reads : polls);
    return value;
  }
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override {
    ++reads;
    return StoreView::multi_get(keys);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    ++writes;
    return StoreView::add(key, amount);
  }

  int writes = 0;
  int reads = 0;  // that found something
  int polls = 0;  // that found nothing
};

}  // namespace altorch
