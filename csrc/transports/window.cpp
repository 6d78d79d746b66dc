// SPDX-License-Identifier: BSD-3-Clause
#include "transports/window.h"

#include <cstring>

#include "reduction/reduce.h"

namespace altorch {
namespace {

// Aligned: offsets are multiples of the element, and tensors begin at one.
template <class Integer>
void count_in(WindowCall& call, std::byte* at) {
  Integer value;
  std::memcpy(&value, at, sizeof value);
  call.found = value;
  using Unsigned = std::make_unsigned_t<Integer>;  // wraps, as torch's integers do
  const auto sum = static_cast<Unsigned>(value) + static_cast<Unsigned>(call.operand);
  Integer next =
      call.access == Access::kFetchAdd ? static_cast<Integer>(sum) : static_cast<Integer>(call.operand);
  if (call.access == Access::kCompareSwap && value != static_cast<Integer>(call.expected)) next = value;
  std::memcpy(at, &next, sizeof next);
}

}  // namespace

void access_memory(WindowCall& call, std::byte* target) {
  const auto* from = static_cast<const std::byte*>(call.from);
  auto* into = static_cast<std::byte*>(call.into);
  const std::size_t elements = call.row_bytes / size_of(call.dtype);
  for (std::size_t row = 0; row < call.rows && call.row_bytes > 0; ++row) {
    std::byte* there = target + call.offset + row * call.stride;
    const std::size_t here = row * call.row_bytes;
    switch (call.access) {
      case Access::kPut:
        std::memmove(there, from + here, call.row_bytes);
        break;
      case Access::kGet:
        std::memmove(into + here, there, call.row_bytes);
        break;
      case Access::kAccumulate:
        reduce(call.dtype, call.op, there, from + here, there, elements);
        break;
      case Access::kFetchAdd:
      case Access::kCompareSwap:
        if (call.dtype == DType::kInt64) count_in<std::int64_t>(call, there);
        if (call.dtype == DType::kInt32) count_in<std::int32_t>(call, there);
        break;
      case Access::kSignal:
        break;
    }
  }
}

}  // namespace altorch
