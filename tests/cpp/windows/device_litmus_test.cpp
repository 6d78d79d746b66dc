// SPDX-License-Identifier: BSD-3-Clause
// The races of device_litmus.h on fake GPUs, and as Cuda* on those of this machine: a GPU for each
// rank, or one for several.
#include "windows/device_litmus.h"

#include <gtest/gtest.h>

#include "device/cuda_driver.h"
#include "gpu/gpu_ranks.h"
#include "support/fake_nccl.h"
#include "support/fake_nvshmem.h"
#include "support/gpu_test.h"
#include "support/route_setting.h"

namespace altorch {
namespace {

using namespace device_litmus;
using Errors = std::vector<std::string>;

constexpr std::chrono::milliseconds kOnFakes{100}, kOnGpus{3000};
// Numbers that kernels move with their signal, and before it, and that copy engines move.
constexpr std::size_t kCounts[] = {40, 4096, 65536};

using Test = std::function<void(const MakeGpu&)>;

// GPUs of their own, one that all share, those that map nothing of each other, and those of a node
// each; "bus": own ones, without atomic operations on each other's memory.
void on_fakes(const Test& test,
              std::initializer_list<const char*> places = {"own", "shared", "apart", "nodes"}) {
  for (const char* const place : places) {
    SCOPED_TRACE(place);
    test([place = std::string(place)](int rank) {
      // Each rank maps the flags of those that share memory elsewhere, and ThreadSanitizer knows
      // flags by their address.
      const FakeDeviceOptions options{.seed = static_cast<unsigned>(rank + 1),
                                      .longest_delay = std::chrono::microseconds(2),
                                      .aborts = place == "shared" || place == "apart" || place == "nodes"};
      const Surroundings here{.gpu = place == "shared" ? "the gpu" : "gpu " + std::to_string(rank),
                              .node = place == "nodes" ? "node " + std::to_string(rank) : "node",
                              .cannot_export = place == "apart" ? "nothing can be mapped in this test" : ""};
      GpuSource gpus = fake_gpus(here, options);
      if (place == "bus")
        gpus.atomics_unsupported_reason = [](int, const std::string&) {
          return std::optional<std::string>("a bus");
        };
      return RaceGpu{std::make_unique<FakeDevice>(options), {0, std::move(gpus)}};
    });
  }
}

Test message_passing(std::chrono::milliseconds time) {
  return [time](const MakeGpu& make) {
    for (const std::size_t count : kCounts) {
      for (const int size : {2, 3})
        EXPECT_EQ(message_passing(size, count, make, time), Errors(static_cast<std::size_t>(size))) << count;
    }
  };
}
Test store_buffering(std::chrono::milliseconds time) {
  return [time](const MakeGpu& make) { EXPECT_EQ(store_buffering(make, time), Errors(2)); };
}
Test independent_reads(std::chrono::milliseconds time) {
  return [time](const MakeGpu& make) { EXPECT_EQ(independent_reads(make, time), Errors(4)); };
}

TEST(DeviceWindowLitmus, MessagePassing) {
  on_fakes(message_passing(kOnFakes), {"own", "bus", "shared", "apart", "nodes"});
}
TEST(DeviceWindowLitmus, StoreBuffering) { on_fakes(store_buffering(kOnFakes)); }
TEST(DeviceWindowLitmus, IndependentReads) { on_fakes(independent_reads(kOnFakes)); }

// Where NCCL carries the signals.
void over_nccl(const Test& test) {
  const RouteSetting setting("window=nccl");
  const FakeNccl nccl(22907);
  on_fakes(test, {"own"});
  EXPECT_GT(nccl.calls("ncclWaitSignal"), 0);
  EXPECT_EQ(nccl.misuse(), Errors());
}
TEST(DeviceWindowLitmus, MessagePassingOverNccl) { over_nccl(message_passing(kOnFakes)); }
TEST(DeviceWindowLitmus, StoreBufferingOverNccl) { over_nccl(store_buffering(kOnFakes)); }
TEST(DeviceWindowLitmus, IndependentReadsOverNccl) { over_nccl(independent_reads(kOnFakes)); }

// Where NVSHMEM carries puts, gets and signals, and the hosts relay the rest.
void over_nvshmem(int ranks, const std::function<Errors(const MakeGpu&)>& race) {
  const RouteSetting setting("window=nvshmem");
  FakeNvshmem nvshmem(ranks);
  const auto test = [&](const MakeGpu& make) {
    const auto entering = [&](int rank) {
      nvshmem.enter(rank);
      return make(rank);
    };
    EXPECT_EQ(race(entering), Errors(static_cast<std::size_t>(ranks)));
  };
  on_fakes(test, {"nodes"});
  EXPECT_GT(nvshmem.calls("nvshmemx_signal_wait_until_on_stream"), 0);
  EXPECT_EQ(nvshmem.misuse(), Errors());
}
TEST(DeviceWindowLitmus, MessagePassingOverNvshmem) {
  for (const std::size_t count : kCounts) {
    for (const int size : {2, 3})
      over_nvshmem(size, [&](const MakeGpu& make) { return message_passing(size, count, make, kOnFakes); });
  }
}
TEST(DeviceWindowLitmus, StoreBufferingOverNvshmem) {
  over_nvshmem(2, [](const MakeGpu& make) { return store_buffering(make, kOnFakes); });
}
TEST(DeviceWindowLitmus, IndependentReadsOverNvshmem) {
  over_nvshmem(4, [](const MakeGpu& make) { return independent_reads(make, kOnFakes); });
}

// Ranks are threads: kernels of those that share a GPU run side by side, as under MPS.
class CudaWindowLitmus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto why = Gpu::unsupported_reason()) GTEST_SKIP() << *why;
    if (auto why = Gpu::kernel_unsupported_reason()) GTEST_SKIP() << *why;
  }
  static RaceGpu make(int rank) {
    int number = 0;
    cuda::driver().check("cuDeviceGetCount", cuda::driver().device_count(&number));
    GpuSource gpus = cuda_gpus();
    gpus.mps = [](int) { return true; };
    return {std::make_unique<CudaDevice>(rank % number), {rank % number, gpus}};
  }
};

TEST_F(CudaWindowLitmus, MessagePassing) { message_passing(kOnGpus)(make); }
TEST_F(CudaWindowLitmus, StoreBuffering) { store_buffering(kOnGpus)(make); }
TEST_F(CudaWindowLitmus, IndependentReads) { independent_reads(kOnGpus)(make); }

// The same as if the GPUs mapped nothing of each other.
TEST_F(CudaWindowLitmus, MessagePassingThroughTheHost) {
  const RouteSetting through_the_host("window=host_staged");
  message_passing(kOnGpus)(make);
}
TEST_F(CudaWindowLitmus, StoreBufferingThroughTheHost) {
  const RouteSetting through_the_host("window=host_staged");
  store_buffering(kOnGpus)(make);
}
TEST_F(CudaWindowLitmus, IndependentReadsThroughTheHost) {
  const RouteSetting through_the_host("window=host_staged");
  independent_reads(kOnGpus)(make);
}

}  // namespace
}  // namespace altorch
