// The races of device_litmus.h on fake GPUs, and as Cuda* on those of this machine: a GPU for each rank, or one for several.
#include "engine/window/device_litmus.h"

#include <gtest/gtest.h>

#include "device/cuda_driver.h"
#include "engine/gpu_ranks.h"
#include "support/gpu_test.h"

namespace altorch {
namespace {

using namespace device_litmus;
using Errors = std::vector<std::string>;

constexpr std::chrono::milliseconds kOnFakes{100}, kOnGpus{3000};
// Numbers that kernels move with their signal, and before it, and that copy engines move.
constexpr std::size_t kCounts[] = {40, 4096, 65536};

MakeGpu fakes(bool own_gpus) {
  return [own_gpus](int rank) {
    const FakeDeviceOptions options{.seed = static_cast<unsigned>(rank + 1),
                                    .longest_delay = std::chrono::microseconds(2)};
    const Surroundings here{.gpu = own_gpus ? "gpu " + std::to_string(rank) : "the gpu", .cannot_export = ""};
    return RaceGpu{std::make_unique<FakeDevice>(options), {0, fake_gpus(here, options)}};
  };
}

TEST(DeviceWindowLitmus, MessagePassing) {
  for (const bool own_gpus : {true, false}) {
    for (const std::size_t count : kCounts) {
      for (const int size : {2, 3})
        EXPECT_EQ(message_passing(size, count, fakes(own_gpus), kOnFakes),
                  Errors(static_cast<std::size_t>(size)))
            << count;
    }
  }
}
TEST(DeviceWindowLitmus, StoreBuffering) {
  for (const bool own_gpus : {true, false}) EXPECT_EQ(store_buffering(fakes(own_gpus), kOnFakes), Errors(2));
}
TEST(DeviceWindowLitmus, IndependentReads) {
  for (const bool own_gpus : {true, false})
    EXPECT_EQ(independent_reads(fakes(own_gpus), kOnFakes), Errors(4));
}

// Ranks are threads: kernels of those that share a GPU run side by side, as under MPS.
class CudaWindowLitmus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto why = Gpu::obstacle()) GTEST_SKIP() << *why;
    if (auto why = Gpu::kernel_obstacle()) GTEST_SKIP() << *why;
  }
  static RaceGpu make(int rank) {
    int number = 0;
    cuda::driver().check("cuDeviceGetCount", cuda::driver().device_count(&number));
    GpuSource gpus = cuda_gpus();
    gpus.together = [](int) { return true; };
    return {std::make_unique<CudaDevice>(rank % number), {rank % number, gpus}};
  }
};

TEST_F(CudaWindowLitmus, MessagePassing) {
  for (const std::size_t count : kCounts) {
    for (const int size : {2, 3})
      EXPECT_EQ(message_passing(size, count, make, kOnGpus), Errors(static_cast<std::size_t>(size))) << count;
  }
}
TEST_F(CudaWindowLitmus, StoreBuffering) { EXPECT_EQ(store_buffering(make, kOnGpus), Errors(2)); }
TEST_F(CudaWindowLitmus, IndependentReads) { EXPECT_EQ(independent_reads(make, kOnGpus), Errors(4)); }

}  // namespace
}  // namespace altorch
