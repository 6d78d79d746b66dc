// SPDX-License-Identifier: BSD-3-Clause
#include "base/fields.h"

#include <charconv>
#include <string_view>

#include "base/error.h"
#include "base/number.h"

namespace altorch {
namespace {

constexpr char kRepeats = '=';  // and how many fields do, which stand where these stood
constexpr char kDiffers = '!';
// Of what all rows say together: repeats would let a short text take any memory.
constexpr std::size_t kMaxFieldBytes = 64 << 20;

Error unreadable() {
  return Error(ErrorKind::kInternal,
               "what another rank wrote cannot be read: the ranks run different versions of altorch; install "
               "the same one everywhere");
}

std::size_t number_in(std::string_view text) {
  if (const auto number = to_number<std::size_t>(text)) return *number;
  throw unreadable();
}

}  // namespace

std::string encode_fields(const Fields& fields) {
  std::string text;
  for (const std::string& field : fields) text += std::to_string(field.size()) + ":" + field;
  return text;
}

Fields decode_fields(const std::string& text) {
  Fields fields;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + at, end, length);
    if (error != std::errc() || stop == end || *stop != ':') throw unreadable();
    at = static_cast<std::size_t>(stop - text.data()) + 1;
    if (length > text.size() - at) throw unreadable();
    fields.push_back(text.substr(at, length));
    at += length;
  }
  return fields;
}

Fields decode_fields(const std::string& text, std::size_t count) {
  Fields fields = decode_fields(text);
  if (fields.size() != count) throw unreadable();
  return fields;
}

std::string encode_rows(const std::vector<Fields>& rows) {
  Fields all;
  const Fields* before = nullptr;
  for (const Fields& row : rows) {
    all.push_back(std::to_string(row.size()));
    std::size_t alike = 0;
    const auto tell_alike = [&] {
      if (alike > 0) all.push_back(kRepeats + std::to_string(alike));
      alike = 0;
    };
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (before && i < before->size() && (*before)[i] == row[i]) {
        ++alike;
        continue;
      }
      tell_alike();
      all.push_back(kDiffers + row[i]);
    }
    tell_alike();
    before = &row;
  }
  return encode_fields(all);
}

std::vector<Fields> decode_rows(const std::string& text) {
  const Fields all = decode_fields(text);
  std::vector<Fields> rows;
  std::size_t bytes = 0;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t count = number_in(all[at++]);
    Fields row;
    while (row.size() < count) {
      if (at == all.size() || all[at].empty() || bytes > kMaxFieldBytes) throw unreadable();
      const std::string_view field = all[at++];
      if (field[0] == kDiffers) {
        row.emplace_back(field.substr(1));
        bytes += sizeof row.back() + field.size();
        continue;
      }
      const std::size_t alike = field[0] == kRepeats ? number_in(field.substr(1)) : 0;
      const std::size_t there = rows.empty() ? 0 : rows.back().size();
      if (alike == 0 || alike > count - row.size() || row.size() + alike > there) throw unreadable();
      const auto from = rows.back().begin() + static_cast<std::ptrdiff_t>(row.size());
      for (auto each = from; each != from + static_cast<std::ptrdiff_t>(alike); ++each) {
        bytes += sizeof *each + each->size();
        if (bytes > kMaxFieldBytes) throw unreadable();
        row.push_back(*each);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace altorch
