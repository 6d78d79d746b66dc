// SPDX-License-Identifier: BSD-3-Clause
#include "reduction/reduce.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "reduction/default_floats.h"
#include "reduction/kernel_table.h"

namespace altorch {
namespace {

std::size_t index_of(DType dtype) { return static_cast<std::size_t>(dtype); }
std::size_t index_of(ReduceOp op) { return static_cast<std::size_t>(op); }

[[noreturn]] void refuse(const char* what, DType dtype) {
  throw Error(ErrorKind::kInvalidArgument, std::string(what) + " is not defined for " + name_of(dtype) +
                                               "; convert the tensor to a type that it is defined for.");
}

}  // namespace

bool can_reduce(DType dtype, ReduceOp op) {
  return reduction::kernel_table().reduce[index_of(dtype)][index_of(op)] != nullptr;
}

void reduce(DType dtype, ReduceOp op, const void* a, const void* b, void* out, std::size_t count) {
  const auto kernel = reduction::kernel_table().reduce[index_of(dtype)][index_of(op)];
  if (kernel == nullptr) [[unlikely]] {
    refuse(name_of(op), dtype);
  }
  const reduction::DefaultFloats floats;
  kernel(a, b, out, count);
}

void combine(DType dtype, ReduceOp op, std::span<const void* const> parts, void* out, std::size_t count) {
  if (is_exact(op)) {
    const auto kernel = reduction::kernel_table().exact[index_of(dtype)];
    if (kernel == nullptr) refuse(name_of(op), dtype);
    const reduction::DefaultFloats floats;
    return kernel(parts, op == ReduceOp::kExactAvg, out, count);
  }
  // What is added up and what is added to it stay in the first cache: every part is read once,
  // `out` written once.
  constexpr std::size_t kChunkBytes = 8 << 10;
  alignas(64) std::byte sum[kChunkBytes], widened[kChunkBytes];
  // One operation is rounded once anyway.
  const bool half = is_half(dtype) && (parts.size() > 2 || op == ReduceOp::kAvg);
  const DType wide = half ? DType::kFloat32 : dtype;
  const std::size_t longest = kChunkBytes / size_of(wide);
  for (std::size_t begin = 0; begin < count; begin += longest) {
    const std::size_t length = std::min(longest, count - begin);
    // Part i in the wide type.
    const auto part = [&](std::size_t i, std::byte* room) -> const void* {
      const void* const stored = static_cast<const std::byte*>(parts[i]) + begin * size_of(dtype);
      if (!half) return stored;
      widen(dtype, stored, reinterpret_cast<float*>(room), length);
      return room;
    };
    std::byte* const target = static_cast<std::byte*>(out) + begin * size_of(dtype);
    const void* so_far = part(0, sum);
    for (std::size_t i = 1; i < parts.size(); ++i) {
      // `out` may be a part that is still to come, so only the last step writes there.
      std::byte* const into = !half && i + 1 == parts.size() ? target : sum;
      reduce(wide, op, so_far, part(i, widened), into, length);
      so_far = into;
    }
    std::byte* const result = half ? sum : target;
    if (op == ReduceOp::kAvg) average(wide, result, static_cast<int>(parts.size()), length);
    if (half) narrow(dtype, reinterpret_cast<const float*>(result), target, length);
  }
}

void scale(DType dtype, void* data, double factor, std::size_t count) {
  const auto kernel = reduction::kernel_table().scale[index_of(dtype)];
  if (kernel == nullptr) refuse("scaling by a factor", dtype);
  const reduction::DefaultFloats floats;
  kernel(data, factor, count);
}

void divide(DType dtype, void* data, long long divisor, std::size_t count) {
  const auto kernel = reduction::kernel_table().divide[index_of(dtype)];
  if (kernel == nullptr) refuse("an average", dtype);
  if (divisor <= 0) {
    throw Error(ErrorKind::kInvalidArgument, "an average over " + std::to_string(divisor) +
                                                 " values was asked for; it needs at least one.");
  }
  const reduction::DefaultFloats floats;
  kernel(data, divisor, count);
}

void average(DType dtype, void* sum, int number, std::size_t count) {
  // The reciprocal of a power of two is exact, so that the product is the quotient, in less time.
  const bool exact = number > 0 && (number & (number - 1)) == 0;
  if (exact && !is_integral(dtype)) return scale(dtype, sum, 1.0 / number, count);
  divide(dtype, sum, number, count);
}

void widen(DType dtype, const void* half, float* wide, std::size_t count) {
  const auto kernel = reduction::kernel_table().widen[index_of(dtype)];
  if (kernel == nullptr) refuse("widening to float32", dtype);
  const reduction::DefaultFloats floats;
  kernel(half, wide, count);
}

void narrow(DType dtype, const float* wide, void* half, std::size_t count) {
  const auto kernel = reduction::kernel_table().narrow[index_of(dtype)];
  if (kernel == nullptr) refuse("narrowing from float32", dtype);
  const reduction::DefaultFloats floats;
  kernel(wide, half, count);
}

}  // namespace altorch
