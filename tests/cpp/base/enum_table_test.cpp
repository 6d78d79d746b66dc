// SPDX-License-Identifier: BSD-3-Clause
#include "base/enum_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "base/dtype.h"
#include "base/op_kind.h"
#include "base/reduce_op.h"

namespace altorch {

enum class Color { kRed, kGreen, kBlue };
template <>
inline constexpr int kCountOf<Color> = 3;

namespace {

using Names = EnumTable<Color, const char*>;
using Row = Names::Row;

// Whether rows for `Colors` make a table: what does not compile is not one.
template <Color... Colors>
concept MakeATable = requires {
  typename std::integral_constant<bool, (Names({Row{Colors, "x"}...}), true)>;
};

TEST(EnumTableTest, FindsARowByItsNameNotItsPlace) {
  constexpr Names names({{Color::kBlue, "blue"}, {Color::kRed, "red"}, {Color::kGreen, "green"}});
  EXPECT_STREQ(names[Color::kRed], "red");
  EXPECT_STREQ(names[Color::kGreen], "green");
  EXPECT_STREQ(names[Color::kBlue], "blue");
}

TEST(EnumTableTest, ARepeatedRowIsNoTable) {
  static_assert(MakeATable<Color::kRed, Color::kGreen, Color::kBlue>);
  static_assert(!MakeATable<Color::kRed, Color::kGreen, Color::kGreen>);
}

TEST(EnumTableTest, MayLeaveOutWhatHasTheValueOfAllOthers) {
  constexpr Names names("another", {{Color::kGreen, "green"}});
  EXPECT_STREQ(names[Color::kGreen], "green");
  EXPECT_STREQ(names[Color::kRed], "another");
}

template <class Key>
void expect_names_of_their_own() {
  std::set<std::string> names;
  for (int i = 0; i < kCountOf<Key>; ++i) names.insert(name_of(static_cast<Key>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kCountOf<Key>));
  EXPECT_EQ(names.count(""), 0u);
}

TEST(EnumTableTest, NamesTellTypesOperatorsAndKindsApart) {
  expect_names_of_their_own<DType>();
  expect_names_of_their_own<ReduceOp>();
  expect_names_of_their_own<OpKind>();
}

TEST(EnumTableTest, PoisonIsNoNumberThatACallGives) {
  const auto as = [](DType dtype, auto value) {
    const std::uint64_t bits = poison_of(dtype);
    std::memcpy(&value, &bits, sizeof value);
    return value;
  };
  EXPECT_NE(as(DType::kFloat32, 0.0f), as(DType::kFloat32, 0.0f));
  EXPECT_NE(as(DType::kFloat64, 0.0), as(DType::kFloat64, 0.0));
  EXPECT_EQ(as(DType::kInt8, std::int8_t{}), INT8_MIN);
  EXPECT_EQ(as(DType::kInt16, std::int16_t{}), INT16_MIN);
  EXPECT_EQ(as(DType::kInt32, std::int32_t{}), INT32_MIN);
  EXPECT_EQ(as(DType::kInt64, std::int64_t{}), INT64_MIN);
  EXPECT_EQ(as(DType::kUInt64, std::uint64_t{}), UINT64_MAX);
  EXPECT_EQ(as(DType::kBool, std::uint8_t{}), 1);
}

}  // namespace
}  // namespace altorch
