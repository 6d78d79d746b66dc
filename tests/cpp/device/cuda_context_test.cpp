// SPDX-License-Identifier: BSD-3-Clause
// Which context of CUDA a thread has, on a driver that only keeps count of that.
#include "device/cuda_context.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/cuda_driver.h"

namespace altorch {
namespace {

constexpr int kGpu = 97;                // no real one's contexts are among those that are kept
thread_local std::vector<void*> stack;  // the current one last
std::set<void*> alive;
char places[2];  // the address of a context that is gone is the next one's
bool is_full = false;
constexpr cuda::Result kOutOfMemory = 2, kIsDestroyed = 709;

void* current() { return stack.empty() ? nullptr : stack.back(); }

cuda::Driver driver_of_contexts() {
  cuda::Driver driver;
  driver.error_string = [](cuda::Result, const char** text) {
    *text = "an error";
    return cuda::kSuccess;
  };
  driver.retain_context = [](void** context, int) {
    *context = &places[0];
    alive.insert(*context);
    return cuda::kSuccess;
  };
  driver.create_context = [](void** context, unsigned, int) {
    if (is_full) return kOutOfMemory;
    *context = &places[1];
    alive.insert(*context);
    stack.push_back(*context);
    return cuda::kSuccess;
  };
  driver.pop_context = [](void** context) {
    *context = current();
    stack.pop_back();
    return cuda::kSuccess;
  };
  driver.destroy_context = [](void* context) {
    return alive.erase(context) == 1 ? cuda::kSuccess : kIsDestroyed;
  };
  driver.get_context = [](void** context) {
    *context = current();
    return cuda::kSuccess;
  };
  driver.set_context = [](void* context) {
    if (context && alive.count(context) == 0) return kIsDestroyed;
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(context);
    return cuda::kSuccess;
  };
  return driver;
}

class CudaContextTest : public ::testing::Test {
 protected:
  CudaContextTest() {
    stack.clear();
    is_full = false;
    cuda::replace_driver(&driver_);
  }
  ~CudaContextTest() override { cuda::replace_driver(nullptr); }
  const cuda::Driver driver_ = driver_of_contexts();
};

TEST_F(CudaContextTest, ThePrimaryOneStaysWhereItIsEntered) {
  const auto primary = CudaContext::primary(kGpu);
  EXPECT_EQ(primary, CudaContext::primary(kGpu));
  { const auto entered = primary->enter(); }
  EXPECT_EQ(current(), &places[0]);
  std::thread([&] {
    { const auto visit = primary->visit(); }
    EXPECT_EQ(current(), nullptr);
  }).join();
}

TEST_F(CudaContextTest, TheSecondOneGoesAgain) {
  const auto primary = CudaContext::primary(kGpu);
  const auto here = primary->enter();
  const auto second = CudaContext::beside(kGpu);
  EXPECT_EQ(second, CudaContext::beside(kGpu)) << "it takes much memory";
  EXPECT_EQ(current(), &places[0]) << "its making must not change the caller's";
  {
    const auto entered = second->enter();
    EXPECT_EQ(current(), &places[1]);
    const auto back = primary->visit();
    EXPECT_EQ(current(), &places[0]);
  }
  EXPECT_EQ(current(), &places[0]);
}

// As the progress thread is, which has none.
TEST_F(CudaContextTest, AThreadKeepsNoneThatIsGone) {
  for (int time = 0; time < 2; ++time) {
    const auto second = CudaContext::beside(kGpu);
    { const auto entered = second->enter(); }
    EXPECT_EQ(current(), nullptr);
  }
  EXPECT_EQ(alive.count(&places[1]), 0u) << "its last owner is gone";
}

TEST_F(CudaContextTest, ThereMayBeNoRoomForASecondOne) {
  is_full = true;
  try {
    CudaContext::beside(kGpu);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_STREQ(error.what(), "GPU 97 gives no second context (cuCtxCreate: CUDA error 2)");
  }
}

}  // namespace
}  // namespace altorch
