// SPDX-License-Identifier: BSD-3-Clause
// A table with one value for each enumerator of an enumeration, as rows that name the enumerator. A
// missing or a second row does not compile, so a new enumerator leads the developer to every table
// that needs a row. Only a table that states one value for all other enumerators may leave rows
// out: it lists what a library supports.
#pragma once

#include <array>
#include <cstddef>

namespace altorch {

// How many enumerators there are, counted from 0 on; specialised beside each enumeration.
template <class Key>
inline constexpr int kCountOf = 0;

template <class Key, class Value>
class EnumTable {
 public:
  struct Row {
    Key key;
    Value value;
  };

  template <std::size_t N>
  consteval explicit(false) EnumTable(const Row (&rows)[N]) {
    static_assert(N == kSize, "there is an enumerator without a row, or a row too many");
    bool seen[kSize] = {};
    for (const Row& row : rows) {
      if (seen[index(row.key)]) throw "an enumerator has two rows, so that another has none";
      seen[index(row.key)] = true;
      values_[index(row.key)] = row.value;
    }
  }

  // `others`: the value of every enumerator without a row.
  template <std::size_t N>
  consteval EnumTable(Value others, const Row (&rows)[N]) {
    for (Value& value : values_) value = others;
    for (const Row& row : rows) values_[index(row.key)] = row.value;
  }

  constexpr const Value& operator[](Key key) const { return values_[index(key)]; }

 private:
  static constexpr std::size_t kSize = static_cast<std::size_t>(kCountOf<Key>);
  static constexpr std::size_t index(Key key) { return static_cast<std::size_t>(key); }

  std::array<Value, kSize> values_{};
};

}  // namespace altorch
