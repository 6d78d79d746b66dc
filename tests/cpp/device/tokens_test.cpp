// SPDX-License-Identifier: BSD-3-Clause
// The kernels of altorch.TokenSwitch, run by the host.
#include <gtest/gtest.h>

#include "device/token_cases.h"
#include "support/fake_device.h"

namespace altorch {
namespace {

TEST(TokenKernels, RouteTokensAndSumTheirRows) {
  FakeDevice device({.longest_delay = std::chrono::microseconds(0)});
  const Stream stream = device.make_stream();
  Bench bench(device, stream, device.pin(Bench::kBytes), [&] { return device.synchronize(stream); });
  for (TokenCase tokens : token_cases()) {
    for (tokens.seed = 1; tokens.seed <= 3; ++tokens.seed)
      ASSERT_EQ(run_alone(bench, tokens).value_or(""), "") << tokens.text();
  }
}

}  // namespace
}  // namespace altorch
