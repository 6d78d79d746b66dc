// The other half of the stand-in for GoogleTest: the list of tests, --gtest_filter, and the closing line.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "gtest/gtest.h"

namespace testing {
namespace {

struct Entry {
  std::string name;
  Test* (*make)();
};

struct Current {
  bool failed = false, fatal = false, skipped = false;
};

std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}
std::mutex mutex;  // guards `current` and what is printed: tests check from several threads
Current current;
thread_local std::vector<std::string> traces;
std::string filter = "*";
bool only_list = false;

// `*` and `?`, as in GoogleTest.
bool matches(const char* pattern, const char* text) {
  if (*pattern == '\0') return *text == '\0';
  if (*pattern == '*') return matches(pattern + 1, text) || (*text != '\0' && matches(pattern, text + 1));
  return *text != '\0' && (*pattern == '?' || *pattern == *text) && matches(pattern + 1, text + 1);
}

bool matches_any(const std::string& patterns, const std::string& text) {
  std::istringstream parts(patterns);
  for (std::string part; std::getline(parts, part, ':');) {
    if (matches(part.c_str(), text.c_str())) return true;
  }
  return false;
}

// "a*:b*-c*": what the part before the minus takes, less what the part behind it takes.
bool selected(const std::string& name) {
  const std::size_t minus = filter.find('-');
  const std::string wanted = minus == 0 ? "*" : filter.substr(0, minus);
  if (!matches_any(wanted, name)) return false;
  return minus == std::string::npos || !matches_any(filter.substr(minus + 1), name);
}

void run(const Entry& entry) {
  try {
    const std::unique_ptr<Test> test(entry.make());
    test->SetUp();
    if (!Test::HasFatalFailure() && !Test::IsSkipped()) test->TestBody();
    test->TearDown();
  } catch (const std::exception& error) {
    internal::record(internal::Outcome::kFatal, "(unknown file)", 0,
                     std::string("uncaught exception: ") + error.what());
  } catch (...) {
    internal::record(internal::Outcome::kFatal, "(unknown file)", 0, "uncaught exception");
  }
}

}  // namespace

bool Test::HasFailure() {
  const std::lock_guard lock(mutex);
  return current.failed;
}
bool Test::HasFatalFailure() {
  const std::lock_guard lock(mutex);
  return current.fatal;
}
bool Test::IsSkipped() {
  const std::lock_guard lock(mutex);
  return current.skipped;
}

std::string TempDir() {
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder ? folder : "/tmp") + "/";
}

namespace internal {

void record(Outcome outcome, const char* file, int line, const std::string& text) {
  const std::lock_guard lock(mutex);
  if (outcome == Outcome::kSkip) {
    current.skipped = true;
    std::printf("  skipped: %s\n", text.c_str());
    return;
  }
  current.failed = true;
  current.fatal |= outcome == Outcome::kFatal;
  std::printf("%s:%d: %s\n", file, line, text.c_str());
  for (auto trace = traces.rbegin(); trace != traces.rend(); ++trace)
    std::printf("  while: %s\n", trace->c_str());
  std::fflush(stdout);
}

int add_test(const char* suite, const char* name, Test* (*make)()) {
  entries().push_back({std::string(suite) + "." + name, make});
  return 0;
}

Trace::Trace(const std::string& text) { traces.push_back(text); }
Trace::~Trace() { traces.pop_back(); }

std::string compare_near(const char* a_text, const char* b_text, double a, double b, double margin) {
  if (std::abs(a - b) <= margin) return "";
  return std::string("expected ") + a_text + " within " + print(margin) + " of " + b_text + ", but it is " +
         print(a) + " against " + print(b) + "\n";
}

std::string compare_strings(const char* a_text, const char* b_text, const char* a, const char* b,
                            bool equal) {
  const bool same = a == b || (a && b && std::strcmp(a, b) == 0);
  if (same == equal) return "";
  return std::string("expected ") + a_text + (equal ? " equal to " : " other than ") + b_text +
         ", but it is \"" + (a ? a : "(null)") + "\" against \"" + (b ? b : "(null)") + "\"\n";
}

}  // namespace internal

void InitGoogleTest(int* argc, char** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--gtest_filter=")) filter = argument.substr(15);
    if (argument == "--gtest_list_tests") only_list = true;
  }
}

int RunAllTests() {
  int passed = 0, skipped = 0;
  std::vector<std::string> failures;
  // Every so-manieth test, as in GoogleTest: other processes run the others.
  const auto number = [](const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text ? std::atoi(text) : otherwise;
  };
  const int shards = number("GTEST_TOTAL_SHARDS", 1), shard = number("GTEST_SHARD_INDEX", 0);
  int place = 0;
  for (const Entry& entry : entries()) {
    if (!selected(entry.name) || place++ % shards != shard) continue;
    if (only_list) {
      std::printf("%s\n", entry.name.c_str());
      continue;
    }
    current = {};
    std::printf("[ RUN      ] %s\n", entry.name.c_str());
    std::fflush(stdout);
    run(entry);
    std::printf("%s %s\n",
                current.failed    ? "[  FAILED  ]"
                : current.skipped ? "[  SKIPPED ]"
                                  : "[       OK ]",
                entry.name.c_str());
    if (current.failed) {
      failures.push_back(entry.name);
    } else if (current.skipped) {
      ++skipped;
    } else {
      ++passed;
    }
  }
  if (only_list) return 0;
  for (const std::string& name : failures) std::printf("failed: %s\n", name.c_str());
  if (skipped > 0) std::printf("%d skipped\n", skipped);
  std::printf("%d passed, %zu failed\n", passed, failures.size());
  // No test at all means that the filter or the build is wrong.
  return failures.empty() && passed + skipped > 0 ? 0 : 1;
}

}  // namespace testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return testing::RunAllTests();
}
