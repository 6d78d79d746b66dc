// SPDX-License-Identifier: BSD-3-Clause
// Every kind of kernel, compiled for GPUs of today; needs NVRTC, and no GPU.
// tests/python/test_kernels.py does the same with the NVRTC that torch brings: versions differ in
// what they take.
#include "device/nvrtc.h"

#include <gtest/gtest.h>

namespace altorch {
namespace {

class Nvrtc : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (auto why = nvrtc_unsupported_reason()) GTEST_SKIP() << *why;
  }
};

// Complex numbers are never compiled ahead, so that nvcc's eyes are no help.
TEST_P(Nvrtc, CompilesEveryKindOfKernel) {
  for (const auto make : {reduction_kernel, ll_reduction_kernel, two_shot_kernel, one_shot_kernel,
                          ll128_reduce_kernel, window_update_kernel}) {
    for (const DType dtype : {DType::kComplex64, DType::kInt8})
      EXPECT_GT(compile_kernel(make(dtype, ReduceOp::kSum), GetParam()).size(), 1000u);
  }
  for (const auto make : {window_move_kernel, window_wait_kernel, window_number_kernel, ll_move_kernel,
                          pair_exchange_kernel, exchange_kernel, ll128_exchange_kernel, poison_kernel,
                          index_pack_kernel, find_slots_kernel, row_pack_kernel, row_scatter_kernel})
    EXPECT_GT(compile_kernel(make(), GetParam()).size(), 1000u);
  for (const DType dtype : {DType::kFloat16, DType::kFloat64})
    EXPECT_GT(compile_kernel(row_sum_kernel(dtype), GetParam()).size(), 1000u);
}

INSTANTIATE_TEST_SUITE_P(ForAmpereAndHopper, Nvrtc, ::testing::Values(80, 90));

}  // namespace
}  // namespace altorch
