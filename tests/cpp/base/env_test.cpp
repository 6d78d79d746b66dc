// SPDX-License-Identifier: BSD-3-Clause
#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace altorch {
namespace {

TEST(Env, GivesDefaultsAndValues) {
  unsetenv("ALTORCH_STALL_SECONDS");
  EXPECT_EQ(numeric_setting("ALTORCH_STALL_SECONDS"), 1.0);
  setenv("ALTORCH_STALL_SECONDS", "2.5", 1);
  EXPECT_EQ(numeric_setting("ALTORCH_STALL_SECONDS"), 2.5);
  setenv("ALTORCH_STALL_SECONDS", "soon", 1);
  EXPECT_THROW(numeric_setting("ALTORCH_STALL_SECONDS"), Error);
  unsetenv("ALTORCH_STALL_SECONDS");
  EXPECT_THROW(setting("ALTORCH_NO_SUCH"), Error);
}

TEST(Env, FindsValuesOfAWrongType) {
  EXPECT_FALSE(wrong_setting());
  for (const auto& [name, value] : {std::pair{"ALTORCH_STALL_SECONDS", "soon"},
                                    {"ALTORCH_STALL_SECONDS", "nan"},
                                    {"ALTORCH_PINNED_BYTES", "-1"},
                                    {"ALTORCH_LOG_LEVEL", "loud"},
                                    {"ALTORCH_ON_ERROR", "poison|teardown"},
                                    {"ALTORCH_MPI_THREAD", "multi"}}) {
    setenv(name, value, 1);
    const auto wrong = wrong_setting();
    unsetenv(name);
    ASSERT_TRUE(wrong) << name;
    EXPECT_TRUE(std::string(wrong->what()).starts_with(name)) << wrong->what();
  }
}

TEST(Env, FindsMisspelledSettings) {
  setenv("ALTORCH_ROUT", "all_reduce=ring", 1);
  const auto unknown = unknown_settings();
  unsetenv("ALTORCH_ROUT");
  EXPECT_EQ(unknown, std::vector<std::string>{"ALTORCH_ROUT"});
}

TEST(Env, TakesNoNumberThatNoIntegerHolds) {
  for (const char* value : {"-1", "nan", "inf", "1e300", "1e10"}) {
    setenv("ALTORCH_STALL_SECONDS", value, 1);
    EXPECT_THROW(numeric_setting("ALTORCH_STALL_SECONDS"), Error) << value;
    EXPECT_TRUE(wrong_setting()) << value;
  }
  unsetenv("ALTORCH_STALL_SECONDS");
}

}  // namespace
}  // namespace altorch
