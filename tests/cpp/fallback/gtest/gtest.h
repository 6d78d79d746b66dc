// A small stand-in for GoogleTest, for machines that lack it: the macros that altorch's tests use, with the
// same meaning. One difference: EXPECT_* may be called from any thread, but GTEST_SKIP and ASSERT_* leave
// only the function they stand in, as in GoogleTest.
#pragma once

#include <cmath>
#include <cstring>
#include <exception>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace testing {

class Test {
 public:
  virtual ~Test() = default;
  virtual void SetUp() {}
  virtual void TearDown() {}
  virtual void TestBody() = 0;
  static bool HasFailure();
  static bool HasFatalFailure();
  static bool IsSkipped();
};

class Message {
 public:
  template <typename T>
  Message& operator<<(const T& value) {
    text_ << value;
    return *this;
  }
  Message& operator<<(std::ostream& (*manipulator)(std::ostream&)) {
    text_ << manipulator;
    return *this;
  }
  std::string GetString() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

class AssertionResult {
 public:
  explicit AssertionResult(bool success) : success_(success) {}
  template <typename T>
  AssertionResult& operator<<(const T& value) {
    std::ostringstream text;
    text << value;
    message_ += text.str();
    return *this;
  }
  explicit operator bool() const { return success_; }
  const char* message() const { return message_.c_str(); }

 private:
  bool success_;
  std::string message_;
};
inline AssertionResult AssertionSuccess() { return AssertionResult(true); }
inline AssertionResult AssertionFailure() { return AssertionResult(false); }

std::string TempDir();
void InitGoogleTest(int* argc, char** argv);
int RunAllTests();

namespace internal {

enum class Outcome { kNonFatal, kFatal, kSkip };

void record(Outcome outcome, const char* file, int line, const std::string& text);
int add_test(const char* suite, const char* name, Test* (*make)());

// What `EXPECT_EQ(a, b) << "more"` assigns its message to. Returning void lets ASSERT_* write `return
// Recorder = ...`.
struct Recorder {
  Outcome outcome;
  const char* file;
  int line;
  std::string text;
  void operator=(const Message& more) const { record(outcome, file, line, text + more.GetString()); }
};

class Trace {
 public:
  explicit Trace(const std::string& text);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
};
template <typename T>
std::string text_of(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

template <typename T>
concept Printable = requires(std::ostream& stream, const T& value) {
  stream << value;
};
template <typename T>
concept Iterable = requires(const T& value) {
  value.begin(), value.end();
};

template <typename T>
std::string print(const T& value) {
  std::ostringstream text;
  if constexpr (std::is_same_v<T, bool>) {
    text << (value ? "true" : "false");
  } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
    text << "nullptr";
  } else if constexpr (std::is_floating_point_v<T>) {
    text.precision(std::numeric_limits<T>::max_digits10);
    text << value;
  } else if constexpr (std::is_enum_v<T>) {
    text << static_cast<long long>(value);
  } else if constexpr (std::is_same_v<T, unsigned char> || std::is_same_v<T, signed char>) {
    text << static_cast<int>(value);
  } else if constexpr (Printable<T>) {
    text << value;
  } else if constexpr (Iterable<T>) {
    text << "{";
    for (const auto& item : value) text << " " << print(item);
    text << " }";
  } else {
    text << sizeof(T) << "-byte object";
  }
  return text.str();
}

// "" when the comparison holds. The integer comparisons mix signedness as freely as GoogleTest's callers do.
#define ALTORCH_TEST_COMPARISON(NAME, OP)                                                           \
  template <typename A, typename B>                                                                 \
  std::string compare_##NAME(const char* a_text, const char* b_text, const A& a, const B& b) {      \
    _Pragma("GCC diagnostic push")                                                                  \
        _Pragma("GCC diagnostic ignored \"-Wsign-compare\"") if (a OP b) return "";                 \
    _Pragma("GCC diagnostic pop") return std::string("expected ") + a_text + " " #OP " " + b_text + \
        ", but it is " + print(a) + " against " + print(b) + "\n";                                  \
  }
ALTORCH_TEST_COMPARISON(eq, ==)
ALTORCH_TEST_COMPARISON(ne, !=)
ALTORCH_TEST_COMPARISON(lt, <)
ALTORCH_TEST_COMPARISON(le, <=)
ALTORCH_TEST_COMPARISON(gt, >)
ALTORCH_TEST_COMPARISON(ge, >=)
#undef ALTORCH_TEST_COMPARISON

template <typename T>
std::string compare_truth(const char* text, const T& value, bool wanted) {
  if (static_cast<bool>(value) == wanted) return "";
  std::string why;
  if constexpr (std::is_same_v<T, AssertionResult>) why = std::string(" (") + value.message() + ")";
  return std::string("expected ") + text + " to be " + (wanted ? "true" : "false") + why + "\n";
}
std::string compare_near(const char* a_text, const char* b_text, double a, double b, double margin);
std::string compare_strings(const char* a_text, const char* b_text, const char* a, const char* b, bool equal);
// Equal to within four units in the last place.
template <typename T>
std::string compare_floats(const char* a_text, const char* b_text, T a, T b) {
  const T scale = std::max(std::abs(a), std::abs(b));
  if (a == b || std::abs(a - b) <= 4 * std::numeric_limits<T>::epsilon() * scale) return "";
  return std::string("expected ") + a_text + " close to " + b_text + ", but it is " + print(a) + " against " +
         print(b) + "\n";
}

}  // namespace internal
}  // namespace testing

#define ALTORCH_TEST_NAME(suite, name) suite##_##name##_Test
#define ALTORCH_TEST_BODY(suite, name, base)                                               \
  class ALTORCH_TEST_NAME(suite, name) : public base {                                     \
   public:                                                                                 \
    void TestBody() override;                                                              \
    static ::testing::Test* Make() { return new ALTORCH_TEST_NAME(suite, name); }          \
  };                                                                                       \
  [[maybe_unused]] static const int altorch_test_##suite##_##name =                        \
      ::testing::internal::add_test(#suite, #name, &ALTORCH_TEST_NAME(suite, name)::Make); \
  void ALTORCH_TEST_NAME(suite, name)::TestBody()
#define TEST(suite, name) ALTORCH_TEST_BODY(suite, name, ::testing::Test)
#define TEST_F(suite, name) ALTORCH_TEST_BODY(suite, name, suite)

#define ALTORCH_TEST_RECORD(outcome, text)                                                         \
  ::testing::internal::Recorder{::testing::internal::Outcome::outcome, __FILE__, __LINE__, text} = \
      ::testing::Message()
// `if (...) ; else` so that these behave as one statement under a braceless if.
#define ALTORCH_TEST_EXPECT(failure)                                          \
  if (const std::string altorch_failure = (failure); altorch_failure.empty()) \
    ;                                                                         \
  else                                                                        \
    ALTORCH_TEST_RECORD(kNonFatal, altorch_failure)
#define ALTORCH_TEST_ASSERT(failure)                                          \
  if (const std::string altorch_failure = (failure); altorch_failure.empty()) \
    ;                                                                         \
  else                                                                        \
    return ALTORCH_TEST_RECORD(kFatal, altorch_failure)

#define ALTORCH_TEST_IS(name, a, b) ::testing::internal::compare_##name(#a, #b, a, b)
#define EXPECT_EQ(a, b) ALTORCH_TEST_EXPECT(ALTORCH_TEST_IS(eq, a, b))
#define EXPECT_NE(a, b) ALTORCH_TEST_EXPECT(ALTORCH_TEST_IS(ne, a, b))
#define EXPECT_LT(a, b) ALTORCH_TEST_EXPECT(ALTORCH_TEST_IS(lt, a, b))
#define EXPECT_LE(a, b) ALTORCH_TEST_EXPECT(ALTORCH_TEST_IS(le, a, b))
#define EXPECT_GT(a, b) ALTORCH_TEST_EXPECT(ALTORCH_TEST_IS(gt, a, b))
#define EXPECT_GE(a, b) ALTORCH_TEST_EXPECT(ALTORCH_TEST_IS(ge, a, b))
#define ASSERT_EQ(a, b) ALTORCH_TEST_ASSERT(ALTORCH_TEST_IS(eq, a, b))
#define ASSERT_NE(a, b) ALTORCH_TEST_ASSERT(ALTORCH_TEST_IS(ne, a, b))
#define ASSERT_LT(a, b) ALTORCH_TEST_ASSERT(ALTORCH_TEST_IS(lt, a, b))
#define ASSERT_LE(a, b) ALTORCH_TEST_ASSERT(ALTORCH_TEST_IS(le, a, b))
#define ASSERT_GT(a, b) ALTORCH_TEST_ASSERT(ALTORCH_TEST_IS(gt, a, b))
#define ASSERT_GE(a, b) ALTORCH_TEST_ASSERT(ALTORCH_TEST_IS(ge, a, b))
#define EXPECT_TRUE(value) ALTORCH_TEST_EXPECT(::testing::internal::compare_truth(#value, value, true))
#define EXPECT_FALSE(value) ALTORCH_TEST_EXPECT(::testing::internal::compare_truth(#value, value, false))
#define ASSERT_TRUE(value) ALTORCH_TEST_ASSERT(::testing::internal::compare_truth(#value, value, true))
#define ASSERT_FALSE(value) ALTORCH_TEST_ASSERT(::testing::internal::compare_truth(#value, value, false))
#define EXPECT_NEAR(a, b, margin) ALTORCH_TEST_EXPECT(::testing::internal::compare_near(#a, #b, a, b, margin))
#define ASSERT_NEAR(a, b, margin) ALTORCH_TEST_ASSERT(::testing::internal::compare_near(#a, #b, a, b, margin))
#define EXPECT_FLOAT_EQ(a, b) ALTORCH_TEST_EXPECT(::testing::internal::compare_floats<float>(#a, #b, a, b))
#define ASSERT_FLOAT_EQ(a, b) ALTORCH_TEST_ASSERT(::testing::internal::compare_floats<float>(#a, #b, a, b))
#define EXPECT_DOUBLE_EQ(a, b) ALTORCH_TEST_EXPECT(::testing::internal::compare_floats<double>(#a, #b, a, b))
#define ASSERT_DOUBLE_EQ(a, b) ALTORCH_TEST_ASSERT(::testing::internal::compare_floats<double>(#a, #b, a, b))
#define EXPECT_STREQ(a, b) ALTORCH_TEST_EXPECT(::testing::internal::compare_strings(#a, #b, a, b, true))
#define ASSERT_STREQ(a, b) ALTORCH_TEST_ASSERT(::testing::internal::compare_strings(#a, #b, a, b, true))
#define EXPECT_STRNE(a, b) ALTORCH_TEST_EXPECT(::testing::internal::compare_strings(#a, #b, a, b, false))
#define ASSERT_STRNE(a, b) ALTORCH_TEST_ASSERT(::testing::internal::compare_strings(#a, #b, a, b, false))

// Lambdas, so that a statement that returns or throws stays inside. They capture by reference, as the
// statement expects.
#define ALTORCH_TEST_THROWS(statement, type)                                                            \
  [&]() -> std::string {                                                                                \
    try {                                                                                               \
      statement;                                                                                        \
    } catch (const type&) {                                                                             \
      return "";                                                                                        \
    } catch (const std::exception& other) {                                                             \
      return std::string("expected " #statement " to throw " #type ", but it threw: ") + other.what() + \
             "\n";                                                                                      \
    } catch (...) {                                                                                     \
      return "expected " #statement " to throw " #type ", but it threw something else\n";               \
    }                                                                                                   \
    return "expected " #statement " to throw " #type ", but it threw nothing\n";                        \
  }()
#define ALTORCH_TEST_THROWS_ANY(statement)                             \
  [&]() -> std::string {                                               \
    try {                                                              \
      statement;                                                       \
    } catch (...) {                                                    \
      return "";                                                       \
    }                                                                  \
    return "expected " #statement " to throw, but it threw nothing\n"; \
  }()
#define ALTORCH_TEST_THROWS_NOT(statement)                                                              \
  [&]() -> std::string {                                                                                \
    try {                                                                                               \
      statement;                                                                                        \
    } catch (const std::exception& error) {                                                             \
      return std::string("expected " #statement " not to throw, but it threw: ") + error.what() + "\n"; \
    } catch (...) {                                                                                     \
      return "expected " #statement " not to throw, but it did\n";                                      \
    }                                                                                                   \
    return "";                                                                                          \
  }()
#define EXPECT_THROW(statement, type) ALTORCH_TEST_EXPECT(ALTORCH_TEST_THROWS(statement, type))
#define ASSERT_THROW(statement, type) ALTORCH_TEST_ASSERT(ALTORCH_TEST_THROWS(statement, type))
#define EXPECT_ANY_THROW(statement) ALTORCH_TEST_EXPECT(ALTORCH_TEST_THROWS_ANY(statement))
#define EXPECT_NO_THROW(statement) ALTORCH_TEST_EXPECT(ALTORCH_TEST_THROWS_NOT(statement))
#define ASSERT_NO_THROW(statement) ALTORCH_TEST_ASSERT(ALTORCH_TEST_THROWS_NOT(statement))

#define ADD_FAILURE() ALTORCH_TEST_RECORD(kNonFatal, "failure: ")
#define ADD_FAILURE_AT(file, line)                                                                  \
  ::testing::internal::Recorder{::testing::internal::Outcome::kNonFatal, file, line, "failure: "} = \
      ::testing::Message()
#define FAIL() return ALTORCH_TEST_RECORD(kFatal, "failure: ")
#define SUCCEED() static_cast<void>(0), ::testing::Message()
#define GTEST_SKIP() return ALTORCH_TEST_RECORD(kSkip, "")

#define ALTORCH_TEST_JOIN2(a, b) a##b
#define ALTORCH_TEST_JOIN(a, b) ALTORCH_TEST_JOIN2(a, b)
#define SCOPED_TRACE(message)                                        \
  const ::testing::internal::Trace ALTORCH_TEST_JOIN(altorch_trace_, \
                                                     __LINE__)(::testing::internal::text_of(message))

#define RUN_ALL_TESTS() ::testing::RunAllTests()
