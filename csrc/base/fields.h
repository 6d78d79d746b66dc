// SPDX-License-Identifier: BSD-3-Clause
// Rows of texts as one text, for the store. Any byte may be part of a field.
#pragma once

#include <string>
#include <vector>

namespace altorch {

using Fields = std::vector<std::string>;

std::string encode_fields(const Fields& fields);
// Throws Error(kInternal) on anything that encode_fields() has not written.
Fields decode_fields(const std::string& text);
// The same on any other number of fields than `count`.
Fields decode_fields(const std::string& text, std::size_t count);

// What ranks say of themselves is mostly alike: all fields in a row that repeat those of the row
// before take a few bytes.
std::string encode_rows(const std::vector<Fields>& rows);
// Throws as above, also where they say more than 64 MiB together.
std::vector<Fields> decode_rows(const std::string& text);

}  // namespace altorch
