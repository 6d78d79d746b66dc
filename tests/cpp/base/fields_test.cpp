// SPDX-License-Identifier: BSD-3-Clause
#include "base/fields.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace altorch {
namespace {

TEST(Fields, AnyByteSurvives) {
  const Fields fields = {"", "=", "!", "3:abc", std::string("\0\n:", 3), std::string(1000, 'x')};
  EXPECT_EQ(decode_fields(encode_fields(fields)), fields);
  const std::vector<Fields> rows = {fields, fields, {}, {"a", "="}, {"a", "=", "!"}, {"b"}};
  EXPECT_EQ(decode_rows(encode_rows(rows)), rows);
}

TEST(Fields, RowsThatAreAlikeTakeLittle) {
  const std::vector<Fields> rows(1000, {std::string(500, 'x'), std::string(500, 'y')});
  EXPECT_LT(encode_rows(rows).size(), 20000u);
  const std::vector<Fields> wide(1000, Fields(60, "a setting"));  // few bytes each, whatever there is to say
  EXPECT_LT(encode_rows(wide).size(), 11000u);
  EXPECT_EQ(decode_rows(encode_rows(wide)), wide);
}

TEST(Fields, AnythingElseIsRefused) {
  for (const char* text : {"hello", "5:abc", "3abc", "-1:", ":", "99999999999999999999:a"})
    EXPECT_THROW(decode_fields(text), Error) << text;
  for (const char* text : {"1:1", "1:21:=", "1:11:x", "1:12:=1", "1:12:!a1:12:=2", "1:12:!a1:12:=0"})
    EXPECT_THROW(decode_rows(text), Error) << text;
}

TEST(Fields, ALittleTextTakesNoMemoryWithoutBound) {
  const std::vector<Fields> rows(100, {std::string(1 << 20, 'x')});
  EXPECT_THROW(decode_rows(encode_rows(rows)), Error);
  EXPECT_THROW(decode_fields(encode_fields({"a", "b"}), 3), Error);
}

}  // namespace
}  // namespace altorch
