// The reductions of torch.distributed.
#pragma once

#include <cstdint>

namespace altorch {

// The order is part of the wire fingerprint: append, never reorder.
enum class ReduceOp : std::uint8_t {
  kSum,
  kAvg,
  kProduct,
  kMin,
  kMax,
  kBand,
  kBor,
  kBxor,
  kPremulSum,
};
inline constexpr int kReduceOpCount = 9;

constexpr const char* name_of(ReduceOp op) {
  constexpr const char* names[kReduceOpCount] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                                 "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  return names[static_cast<int>(op)];
}

}  // namespace altorch
