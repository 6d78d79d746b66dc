// What stands in a result that must not look healthy: NaN, or the extreme of a type that has none.
#pragma once

#include <cstdint>

#include "common/dtype.h"

namespace altorch {

// Eight bytes that repeat: elements of up to eight bytes, and the halves of larger ones. Of bools, true: they
// have no value that could be told from a healthy one.
constexpr std::uint64_t poison_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 0x0101010101010101u;
    case DType::kInt8:
    case DType::kFloat8E4M3FNUZ:  // their only NaN
    case DType::kFloat8E5M2FNUZ:
      return 0x8080808080808080u;
    case DType::kInt16:
      return 0x8000800080008000u;
    case DType::kInt32:
      return 0x8000000080000000u;
    case DType::kInt64:
      return 0x8000000000000000u;
    default:
      return 0xFFFFFFFFFFFFFFFFu;  // a NaN of every other floating type, the largest unsigned number
  }
}

}  // namespace altorch
