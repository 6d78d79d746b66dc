// SPDX-License-Identifier: BSD-3-Clause
#include "c_api/callback_store.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "base/error.h"

namespace altorch {
namespace {

std::mutex mutex;
std::map<std::string, std::string> values;
bool fails = false;

const altorch_store kStore = {
    .set =
        [](const char* key, const char* data, size_t bytes) {
          const std::lock_guard lock(mutex);
          values[key] = std::string(data, bytes);
          return int{fails};
        },
    .set_once =
        [](const char* key, const char* data, size_t bytes) {
          const std::lock_guard lock(mutex);
          values.emplace(key, std::string(data, bytes));
          return int{fails};
        },
    .get =
        [](const char* key, void* answer) {
          const std::lock_guard lock(mutex);
          const auto found = values.find(key);
          if (found != values.end()) altorch_answer(answer, found->second.data(), found->second.size());
          return int{fails};
        },
    .add =
        [](const char* key, int64_t amount, int64_t* sum) {
          const std::lock_guard lock(mutex);
          std::string& value = values[key];
          *sum = (value.empty() ? 0 : std::stoll(value)) + amount;
          value = std::to_string(*sum);
          return int{fails};
        },
};

using std::chrono::milliseconds;

TEST(CallbackStore, KeepsBytesBehindItsPrefix) {
  CallbackStore store(kStore, "a/b"), other(kStore, "c");
  const std::string bytes("x\0\xff y", 5);
  store.set("key", bytes);
  EXPECT_EQ(store.get("key", milliseconds(0)), bytes);
  EXPECT_EQ(values.at("a/b/key"), bytes);
  EXPECT_FALSE(other.try_get("key"));
  store.set_once("key", "late");
  EXPECT_EQ(store.try_get("key"), bytes);
  store.set("empty", "");
  EXPECT_EQ(store.multi_get({"empty", "key"}), (std::vector<std::string>{"", bytes}));
  EXPECT_FALSE(store.multi_get({"key", "missing"}));
  EXPECT_EQ(store.add("sum", 3), 3);
  EXPECT_EQ(store.add("sum", -5), -2);
}

TEST(CallbackStore, SaysWhichKeyDidNotCome) {
  CallbackStore store(kStore, "p");
  try {
    store.get("missing", milliseconds(20));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
    EXPECT_NE(std::string(error.what()).find("'missing'"), std::string::npos);
  }
  fails = true;
  try {
    store.set("key", "value");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTransport);
    EXPECT_NE(std::string(error.what()).find("'p/key'"), std::string::npos);
  }
  fails = false;
}

TEST(CallbackStoreDeathTest, AsksNothingAfterStop) {
  EXPECT_EXIT(
      {
        CallbackStore::stop();
        try {
          CallbackStore(kStore, "p").try_get("key");
        } catch (const Error& error) {
          _exit(error.kind() == ErrorKind::kClosed ? 0 : 1);
        }
        _exit(2);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace altorch
