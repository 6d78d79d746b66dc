// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/algorithm.h"

namespace altorch {

// Each is defined in <operation>/<name>.cpp.
// clang-format off
namespace schedules {
namespace all_reduce { extern const Algorithm one_shot, recursive_doubling, rabenseifner, ring, pairwise; }
namespace reduce { extern const Algorithm linear, binomial, pairwise; }
namespace broadcast { extern const Algorithm linear, binomial, scatter_all_gather, pairwise; }
namespace all_gather { extern const Algorithm linear, recursive_doubling, bruck, ring; }
namespace reduce_scatter { extern const Algorithm pairwise, ring; }
namespace all_to_all { extern const Algorithm linear, bruck, pairwise; }
namespace gather { extern const Algorithm binomial, linear; }
namespace scatter { extern const Algorithm binomial, linear; }
namespace scan { extern const Algorithm recursive_doubling, recursive_doubling_below; }
namespace barrier { extern const Algorithm linear, dissemination; }
}  // namespace schedules

namespace {

using namespace schedules;

constexpr const Algorithm* kAlgorithms[] = {
    &all_reduce::one_shot, &all_reduce::recursive_doubling, &all_reduce::rabenseifner, &all_reduce::ring, &all_reduce::pairwise,
    &reduce::linear, &reduce::binomial, &reduce::pairwise,
    &broadcast::linear, &broadcast::binomial, &broadcast::scatter_all_gather, &broadcast::pairwise,
    &all_gather::linear, &all_gather::recursive_doubling, &all_gather::bruck, &all_gather::ring,
    &reduce_scatter::pairwise, &reduce_scatter::ring,
    &all_to_all::linear, &all_to_all::bruck, &all_to_all::pairwise,
    &gather::binomial, &gather::linear,
    &scatter::binomial, &scatter::linear,
    &scan::recursive_doubling, &scan::recursive_doubling_below,
    &barrier::linear, &barrier::dissemination,
};
// clang-format on

}  // namespace

std::span<const Algorithm* const> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(OpKind kind, std::string_view name) {
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->kind == kind && algorithm->name == name) return algorithm;
  }
  return nullptr;
}

}  // namespace altorch
