// SPDX-License-Identifier: BSD-3-Clause
#include "base/interrupt.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "health/liveness_store.h"
#include "support/map_store.h"

namespace altorch {
namespace {

std::string reason_of_the_end() {
  try {
    Interruptible::check();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kClosed);
    return error.what();
  }
  return "";
}

TEST(Interrupt, IsOfOneThreadAndOneStretch) {
  const auto outer = std::make_shared<Interrupt>(), inner = std::make_shared<Interrupt>();
  outer->raise("first");
  outer->raise("second");
  EXPECT_EQ(reason_of_the_end(), "");
  {
    const Interruptible stretch(outer);
    EXPECT_EQ(reason_of_the_end(), "first");
    {
      const Interruptible within(inner);
      EXPECT_EQ(reason_of_the_end(), "");
    }
    EXPECT_EQ(reason_of_the_end(), "first");
    std::thread([] { EXPECT_EQ(reason_of_the_end(), ""); }).join();
  }
  EXPECT_EQ(reason_of_the_end(), "");
}

TEST(Interrupt, EndsAWaitInTheStore) {
  MapStore keys;
  LivenessStore store(keys, nullptr, {0, 1});
  const auto interrupt = std::make_shared<Interrupt>();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    interrupt->raise("another thread aborted the group");
  });
  const Interruptible stretch(interrupt);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THROW(store.get("never", std::chrono::seconds(60)), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  other.join();
}

}  // namespace
}  // namespace altorch
