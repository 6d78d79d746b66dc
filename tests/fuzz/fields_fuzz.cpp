// SPDX-License-Identifier: BSD-3-Clause
// Rows of texts, of which nearly everything that ranks tell each other is made.
#include "base/fields.h"
#include "fuzz/target.h"

namespace altorch {
namespace {

void read_as_fields(const std::string& text) {
  const Fields fields = decode_fields(text);
  fuzz::require(decode_fields(encode_fields(fields)) == fields, "fields survive");
  fuzz::require(decode_rows(encode_rows({fields, fields, {}})) == std::vector<Fields>{fields, fields, {}},
                "fields survive as rows");
}

void read_as_rows(const std::string& text) {
  const auto rows = decode_rows(text);
  fuzz::require(decode_rows(encode_rows(rows)) == rows, "rows survive");
}

}  // namespace

FUZZ_TARGET(fields, 3000) {
  const std::string text = input.rest();
  try {
    read_as_fields(text);
  } catch (const Error&) {
  }
  read_as_rows(text);
}

}  // namespace altorch
