// SPDX-License-Identifier: BSD-3-Clause
// A rank's fake GPU for tests of windows, whose memory others can map.
#pragma once

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

}  // namespace altorch
