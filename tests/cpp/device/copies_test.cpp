// SPDX-License-Identifier: BSD-3-Clause
// The kernel that copies many blocks, run by the host.
#include <gtest/gtest.h>

#include "device/copy_cases.h"
#include "support/fake_device.h"

namespace altorch {
namespace {

TEST(CopyKernel, CopiesEveryBlockAndNothingElse) {
  FakeDevice device({.longest_delay = std::chrono::microseconds(0)});
  const Stream stream = device.make_stream();
  Bench bench(device, stream, device.pin(Bench::kBytes), [&] { return device.synchronize(stream); });
  EXPECT_EQ(run_copies(bench).value_or(""), "");
}

}  // namespace
}  // namespace altorch
