// SPDX-License-Identifier: BSD-3-Clause
// What belongs to each enumerator of an enumeration, as rows that name theirs. A row that is missing, or there
// twice, does not compile, so that whoever adds an enumerator is led to every table that needs a row. Only a
// table that says what holds for all others may leave some out: what a library has, of all that there is.
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

  // `others`: of every enumerator without a row.
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
