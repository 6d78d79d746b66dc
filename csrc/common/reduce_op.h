// The reductions of torch.distributed.
#pragma once

#include <cstdint>

#include "common/enum_table.h"

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
template <>
inline constexpr int kCountOf<ReduceOp> = kReduceOpCount;

inline constexpr EnumTable<ReduceOp, const char*> kReduceOpNames({
    {ReduceOp::kSum, "SUM"},
    {ReduceOp::kAvg, "AVG"},
    {ReduceOp::kProduct, "PRODUCT"},
    {ReduceOp::kMin, "MIN"},
    {ReduceOp::kMax, "MAX"},
    {ReduceOp::kBand, "BAND"},
    {ReduceOp::kBor, "BOR"},
    {ReduceOp::kBxor, "BXOR"},
    {ReduceOp::kPremulSum, "PREMUL_SUM"},
});
constexpr const char* name_of(ReduceOp op) { return kReduceOpNames[op]; }

}  // namespace altorch
