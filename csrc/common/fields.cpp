#include "common/fields.h"

#include <charconv>

#include "common/error.h"

namespace altorch {
namespace {

constexpr char kRepeats[] = "=";
constexpr char kDiffers = '!';

Error unreadable() {
  return Error(ErrorKind::kInternal,
               "what another rank wrote cannot be read: the ranks run different versions of altorch; install "
               "the same one everywhere");
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

std::string encode_rows(const std::vector<Fields>& rows) {
  Fields all;
  const Fields* before = nullptr;
  for (const Fields& row : rows) {
    all.push_back(std::to_string(row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool repeats = before && i < before->size() && (*before)[i] == row[i];
      all.push_back(repeats ? kRepeats : kDiffers + row[i]);
    }
    before = &row;
  }
  return encode_fields(all);
}

std::vector<Fields> decode_rows(const std::string& text) {
  const Fields all = decode_fields(text);
  std::vector<Fields> rows;
  for (std::size_t at = 0; at < all.size();) {
    std::size_t count = 0;
    const std::string& number = all[at++];
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), count);
    if (error != std::errc() || count > all.size() - at) throw unreadable();
    Fields row;
    for (std::size_t i = 0; i < count; ++i, ++at) {
      if (all[at] == kRepeats && !rows.empty() && i < rows.back().size()) {
        row.push_back(rows.back()[i]);
      } else if (!all[at].empty() && all[at][0] == kDiffers) {
        row.push_back(all[at].substr(1));
      } else {
        throw unreadable();
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace altorch
