#include "engine/window/device_window.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/gpu_ranks.h"
#include "engine/thread_group.h"
#include "engine/window/exported.h"
#include "engine/window/window_conformance.h"
#include "support/says.h"

namespace altorch {
namespace {

using conformance::Allocate;
using conformance::kPatience;

// A rank's GPU, whose memory others can map.
struct Gpu {
  explicit Gpu(const Surroundings& here, unsigned seed, OnError on_error = OnError::kPoison)
      : options{.seed = seed, .longest_delay = std::chrono::microseconds(30), .gives_up = true},
        device(options),
        window{0, fake_gpus(here, options), on_error},
        allocate([this](std::size_t bytes) { return exported(device, bytes); }) {
    allocate.gpu = &window;
    allocate.stream = device.make_stream();
  }

  FakeDeviceOptions options;
  FakeDevice device;
  WindowGpu window;
  Allocate allocate;
};

Surroundings surroundings(bool own_gpus, int rank) {
  return {.gpu = own_gpus ? "gpu " + std::to_string(rank) : "the gpu", .cannot_export = ""};
}

using Body = std::function<void(Gpu&, Communicator&)>;
std::vector<std::string> on_gpus(ThreadGroup& group, bool own_gpus, const Body& body) {
  return group.run([&](int rank, Communicator& communicator) {
    Gpu gpu(surroundings(own_gpus, rank), static_cast<unsigned>(rank + 1));
    try {
      body(gpu, communicator);
    } catch (const std::runtime_error& error) {
      if (dynamic_cast<const Error*>(&error)) throw;
      throw Error(ErrorKind::kInternal, error.what());
    }
  });
}

TEST(DeviceWindow, Conforms) {
  for (const bool own_gpus : {true, false}) {
    for (const int size : {1, 2, 3}) {
      ThreadGroup group(size);
      const auto errors = on_gpus(group, own_gpus, [](Gpu& gpu, Communicator& communicator) {
        conformance::window_conforms(communicator, gpu.allocate);
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "") << size << " ranks " << own_gpus;
    }
  }
}

// Of any type that can be added.
TEST(DeviceWindow, AddsElementsBesideEachOther) {
  ThreadGroup group(2);
  const auto errors = on_gpus(group, true, [](Gpu& gpu, Communicator& communicator) {
    const conformance::Opened<double> complex(communicator, gpu.allocate, DType::kComplex128, 2 * 33);
    std::vector<double> ones(2 * 33, 1.5);
    for (int time = 0; time < 4; ++time) {
      WindowCall made = complex.call(Access::kAccumulate, 0, 0, 66);
      made.from = ones.data();
      complex.run(std::move(made));
    }
    complex.meet();
    if (communicator.rank() == 0) {
      for (const double each : complex.values) conformance::expect(each == 12.0, "a complex sum is wrong");
    }
    complex.close();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(DeviceWindow, SaysWhyThereCanBeNone) {
  ThreadGroup group(2);
  const auto errors = on_gpus(group, true, [](Gpu& gpu, Communicator& communicator) {
    std::vector<float> plain(8);
    const WindowGpu* const where = communicator.rank() == 1 ? nullptr : &gpu.window;
    try {
      open_window(communicator, reinterpret_cast<std::byte*>(plain.data()), {32, DType::kFloat32}, nullptr,
                  kPatience, "", where);
      ADD_FAILURE() << "a GPU and a CPU in one window";
    } catch (const Error& error) {
      EXPECT_TRUE(says(error.what(), "is on a GPU") || says(error.what(), "is on the CPU")) << error.what();
    }
    open_window(communicator, reinterpret_cast<std::byte*>(plain.data()), {32, DType::kFloat32}, nullptr,
                kPatience, "", &gpu.window);
  });
  for (const std::string& error : errors) EXPECT_TRUE(says(error, "was not made by altorch.empty")) << error;
}

// A stream that waits for a rank that has given up goes on, and what it waited for is marked.
TEST(DeviceWindow, EndsWaitsOfStreams) {
  for (const bool own_gpus : {true, false}) {
    ThreadGroup group(2);
    const auto errors = on_gpus(group, own_gpus, [](Gpu& gpu, Communicator& communicator) {
      const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 100);
      opened.meet();
      if (communicator.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        communicator.close("the group was aborted");
        return;
      }
      opened.window->enqueue_wait(0, 3, opened.stream, false, std::chrono::milliseconds(300));
      EXPECT_TRUE(opened.window->look());
      while (opened.window->look()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_TRUE(gpu.device.synchronize(opened.stream));
      for (const float each : opened.values) EXPECT_TRUE(std::isnan(each));
      EXPECT_TRUE(opened.window->failure());
      throw *opened.window->failure();
    });
    EXPECT_EQ(errors[0], "");
    EXPECT_TRUE(says(errors[1], "wait for a signal of rank 0")) << errors[1];
  }
}

// As a graph does it: what was enqueued comes once more, without the host.
TEST(DeviceWindow, CountsSignalsOnTheDevice) {
  ThreadGroup group(2);
  const auto errors = on_gpus(group, true, [](Gpu&, Communicator& communicator) {
    Gpu gpu(surroundings(true, communicator.rank()), 7);
    const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 4);
    for (int time = 0; time < 3; ++time) {
      WindowCall made = opened.call(Access::kSignal, opened.next(), 0, 0);
      made.slot = 2;
      made.captured = true;
      bool free = true;
      opened.window->access(made, kPatience, free);
      opened.window->enqueue_wait(opened.before(), 2, opened.stream, /*captured=*/true, kPatience);
    }
    EXPECT_TRUE(gpu.device.synchronize(opened.stream));
    EXPECT_TRUE(opened.window->look()) << "graphs may be replayed at any time";
    EXPECT_FALSE(opened.window->failure());
    opened.close();
    EXPECT_FALSE(opened.window->look());
    // What is replayed afterwards goes on, and does nothing.
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

}  // namespace
}  // namespace altorch
