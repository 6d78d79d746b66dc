// SPDX-License-Identifier: BSD-3-Clause
// A rank's fake GPU for tests of windows, whose memory others can map.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "gpu/gpu_ranks.h"
#include "windows/exported.h"
#include "windows/window_conformance.h"

namespace altorch {

struct FakeWindowGpu {
  explicit FakeWindowGpu(const Surroundings& here, unsigned seed, OnError on_error = OnError::kPoison)
      : options{.seed = seed, .longest_delay = std::chrono::microseconds(30), .aborts = true},
        device(options),
        window{0, fake_gpus(here, options), on_error},
        allocate([this](std::size_t bytes) { return exported(device, bytes); }) {
    allocate.gpu = &window;
    allocate.stream = device.make_stream();
  }

  FakeDeviceOptions options;
  FakeDevice device;
  WindowGpu window;
  conformance::Allocate allocate;
};

// For two ranks. Rank 0 aborts the group while a stream of rank 1 waits for its signal: the stream
// goes on, and what it waited for is marked. Rank 1 throws what its window says of it.
inline void wait_for_a_rank_that_aborts(FakeWindowGpu& gpu, Communicator& communicator, int slot,
                                        bool captured = false) {
  const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 100);
  opened.barrier();
  if (communicator.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    communicator.close("the group was aborted");
    return;
  }
  opened.window->enqueue_wait(0, slot, opened.stream, captured, std::chrono::milliseconds(300));
  EXPECT_TRUE(opened.window->look());
  while (opened.window->look()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(gpu.device.synchronize(opened.stream));
  for (const float each : opened.values) EXPECT_TRUE(std::isnan(each));
  EXPECT_TRUE(opened.window->failure());
  throw *opened.window->failure();
}

// For two ranks, which release the window while a stream of rank 1 waits for what no rank has
// signalled.
inline void release_what_waits(FakeWindowGpu& gpu, Communicator& communicator, int slot) {
  const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 8);
  const Stream waits = gpu.device.make_stream();
  if (opened.rank() == 1)
    opened.window->enqueue_wait(0, slot, waits, /*captured=*/false, conformance::kPatience);
  opened.barrier();
  opened.close();
  EXPECT_TRUE(gpu.device.synchronize(waits));
}

}  // namespace altorch
