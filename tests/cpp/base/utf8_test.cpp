// SPDX-License-Identifier: BSD-3-Clause
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace altorch {
namespace {

TEST(Utf8, StaysAsItIs) {
  for (const char* text :
       {"", "in no call", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(as_utf8(text, 100), text);
}

TEST(Utf8, IsCutBetweenCharacters) {
  for (std::size_t most = 0; most < 8; ++most) {
    EXPECT_EQ(as_utf8("\xC3\xA9\xC3\xA9\xC3\xA9", most),
              std::string("\xC3\xA9\xC3\xA9\xC3\xA9").substr(0, std::min<std::size_t>(most, 6) / 2 * 2));
    EXPECT_EQ(as_utf8("abcdefgh", most).size(), most);
  }
}

TEST(Utf8, HasNothingElse) {
  EXPECT_EQ(as_utf8("two\nlines\x7f", 100), "two?lines?");
  EXPECT_EQ(as_utf8("\xFF"
                    "a",
                    100),
            "?a");
  EXPECT_EQ(as_utf8("\xC3", 100), "?");
  EXPECT_EQ(as_utf8("\xC3(", 100), "?(");
  EXPECT_EQ(as_utf8("\x80", 100), "?");
  EXPECT_EQ(as_utf8("\xC0\xAF", 100), "??");  // longer than it need be
  EXPECT_EQ(as_utf8("\xE0\x9F\xBF", 100), "???");
  EXPECT_EQ(as_utf8("\xED\xA0\x80", 100), "???");       // a surrogate
  EXPECT_EQ(as_utf8("\xF4\x90\x80\x80", 100), "????");  // behind the last code point
  EXPECT_EQ(as_utf8("\xE2\x82", 100), "??");
}

}  // namespace
}  // namespace altorch
