// SPDX-License-Identifier: BSD-3-Clause
// Fixtures of tests on a real GPU. Where there is none they are skipped, with the reason.
#pragma once

#include <gtest/gtest.h>

#include "support/gpu.h"

namespace altorch {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto why = Gpu::unsupported_reason()) GTEST_SKIP() << *why;
    gpu_ = std::make_unique<Gpu>();
  }
  Gpu& gpu() { return *gpu_; }
  CudaDevice& device() { return gpu_->device(); }

 private:
  std::unique_ptr<Gpu> gpu_;
};

class GpuKernelTest : public GpuTest {
 protected:
  void SetUp() override {
    if (auto why = Gpu::unsupported_reason()) GTEST_SKIP() << *why;
    if (auto why = Gpu::kernel_unsupported_reason()) GTEST_SKIP() << *why;
    GpuTest::SetUp();
  }
};

}  // namespace altorch
