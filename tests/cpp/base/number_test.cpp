// SPDX-License-Identifier: BSD-3-Clause
#include "base/number.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "support/says.h"

namespace altorch {
namespace {

TEST(Number, IsAllOfTheText) {
  EXPECT_EQ(to_number<int>("42"), 42);
  EXPECT_EQ(to_number<int>("-42"), -42);
  EXPECT_EQ(to_number<unsigned char>("fe", 16), 0xfe);
  EXPECT_EQ(to_number<std::uint64_t>("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  for (const char* text : {"", " 42", "42 ", "4x", "x", "+4", "0x10", "2147483648", "1e3"})
    EXPECT_FALSE(to_number<int>(text)) << text;
  EXPECT_FALSE(to_number<std::uint64_t>("-1"));
}

TEST(Number, AnErrorNamesWhatWasRead) {
  try {
    number_from<int>("soon\n", "a rank");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(says(error.what(), "'soon?' as a rank")) << error.what();
  }
  EXPECT_LT(excerpt(std::string(1000, 'x')).size(), 80u);
  EXPECT_EQ(excerpt("caf\xC3\xA9\xFF!\n"), "'caf\xC3\xA9?!?'");  // Python reads errors as UTF-8
}

}  // namespace
}  // namespace altorch
