// SPDX-License-Identifier: BSD-3-Clause
// A store in which another process has written what the input holds: each value that is asked for
// is its next piece, an empty one a key that is missing. At its end, or after some missing keys,
// the ranks are lost.
#pragma once

#include "base/number.h"
#include "fuzz/target.h"
#include "rendezvous/key_value_store.h"

namespace altorch::fuzz {

class HostileStore : public KeyValueStore {
 public:
  explicit HostileStore(Input& input) : input_(input) {}

  void set(const std::string&, const std::string&) override {}
  void set_once(const std::string&, const std::string&) override {}
  std::string get(const std::string&, std::chrono::milliseconds) override {
    if (auto value = next()) return *std::move(value);
    throw Error(ErrorKind::kTimeout, "missing");
  }
  std::optional<std::string> try_get(const std::string&) override { return next(); }
  std::optional<std::vector<std::string>> multi_get(const std::vector<std::string>& keys) override {
    std::vector<std::string> values;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto value = next();
      if (!value) return std::nullopt;
      values.push_back(*std::move(value));
    }
    return values;
  }
  std::int64_t add(const std::string&, std::int64_t) override {
    return to_number<std::int64_t>(next().value_or("1")).value_or(1);
  }

 private:
  std::optional<std::string> next() {
    auto value = input_.piece();
    if (value && !value->empty()) return value;
    if (!value || ++missed_ > kPatience) throw Error(ErrorKind::kPeerLost, "the input is over");
    return std::nullopt;
  }

  static constexpr int kPatience = 3;
  Input& input_;
  int missed_ = 0;
};

}  // namespace altorch::fuzz
