// SPDX-License-Identifier: BSD-3-Clause
// The program ends when every group has: what the progress thread drives meanwhile is known to its
// stack alone, where the search for leaks does not always look.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "runtime/progress.h"

namespace altorch {
namespace {

class EndOfGroups : public testing::Environment {
 public:
  void TearDown() override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (ProgressThread::Use::living() > 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(ProgressThread::Use::living(), 0) << "groups outlive their tests";
  }
};

const auto* const environment = testing::AddGlobalTestEnvironment(new EndOfGroups);

}  // namespace
}  // namespace altorch
