// SPDX-License-Identifier: BSD-3-Clause
#include "transports/window_request.h"

#include "reduction/reduce.h"

namespace altorch {

WindowRequest WindowRequest::of(const WindowCall& call) {
  return {static_cast<std::uint8_t>(call.access),
          static_cast<std::uint8_t>(call.dtype),
          static_cast<std::uint8_t>(call.op),
          static_cast<std::uint8_t>(call.slot + 1),
          0,
          call.offset,
          call.row_bytes,
          call.rows,
          call.stride,
          call.operand,
          call.expected};
}

bool WindowRequest::fits(std::size_t bytes) const {
  if (access >= kCountOf<Access> || dtype >= kDTypeCount || op >= kReduceOpCount || slot > kSignalSlots)
    return false;
  if (rows == 0 || row_bytes == 0) return offset <= bytes;
  const auto what = static_cast<Access>(access);
  const auto type = static_cast<DType>(dtype);
  if (is_atomic(what) && (offset % size_of(type) != 0 || stride % size_of(type) != 0)) return false;
  if (row_bytes % size_of(type) != 0 || (rows > 1 && stride < row_bytes)) return false;
  if (what == Access::kAccumulate && !can_reduce(type, static_cast<ReduceOp>(op))) return false;
  std::uint64_t end = 0;
  if (__builtin_mul_overflow(rows - 1, stride, &end)) return false;
  if (__builtin_add_overflow(end, row_bytes, &end)) return false;
  return !__builtin_add_overflow(end, offset, &end) && end <= bytes;
}

WindowCall WindowRequest::call() const {
  WindowCall call;
  call.access = static_cast<Access>(access);
  call.dtype = static_cast<DType>(dtype);
  call.op = static_cast<ReduceOp>(op);
  call.slot = static_cast<int>(slot) - 1;
  call.offset = offset;
  call.row_bytes = row_bytes;
  call.rows = rows;
  call.stride = stride;
  call.operand = operand;
  call.expected = expected;
  return call;
}

}  // namespace altorch
