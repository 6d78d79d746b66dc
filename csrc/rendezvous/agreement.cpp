// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/agreement.h"

#include <algorithm>

#include "base/env.h"

namespace altorch {
namespace {

constexpr int kMaxListedValues = 8;

std::string value_of(const std::string& field) {
  const std::string value = field.substr(field.find('=') + 1);
  return value.empty() ? "not set" : "'" + value + "'";
}

std::string ranks_that_say(const std::string& field, std::size_t column, const std::vector<Fields>& ranks,
                           std::span<const int> names) {
  std::string text;
  int count = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i][column] != field) continue;
    if (++count <= kMaxListedValues) text += (text.empty() ? "" : ", ") + std::to_string(names[i]);
  }
  if (count > kMaxListedValues) text += " and " + std::to_string(count - kMaxListedValues) + " more";
  return (count == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

Fields settings_to_agree_on() {
  Fields fields;
  for (const Setting& row : settings()) {
    if (row.must_agree) fields.push_back(row.name + ("=" + setting(row.name)));
  }
  return fields;
}

std::optional<Error> disagreement(const std::vector<Fields>& ranks, std::span<const int> names) {
  std::size_t columns = ranks.front().size();
  for (const Fields& fields : ranks) columns = std::min(columns, fields.size());
  for (std::size_t column = 0; column < columns; ++column) {
    const std::string& first = ranks.front()[column];
    for (const Fields& fields : ranks) {
      const std::string& other = fields[column];
      if (other == first) continue;
      return Error(ErrorKind::kMismatch,
                   "the ranks differ in " + first.substr(0, first.find('=')) + ": " + value_of(first) +
                       " on " + ranks_that_say(first, column, ranks, names) + ", " + value_of(other) +
                       " on " + ranks_that_say(other, column, ranks, names) +
                       "; make it the same on every rank");
    }
  }
  return std::nullopt;
}

}  // namespace altorch
