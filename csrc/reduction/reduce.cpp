#include "reduction/reduce.h"

#include <string>

#include "common/error.h"
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
  kernel(a, b, out, count);
}

void scale(DType dtype, void* data, double factor, std::size_t count) {
  const auto kernel = reduction::kernel_table().scale[index_of(dtype)];
  if (kernel == nullptr) refuse("scaling by a factor", dtype);
  kernel(data, factor, count);
}

void divide(DType dtype, void* data, long long divisor, std::size_t count) {
  const auto kernel = reduction::kernel_table().divide[index_of(dtype)];
  if (kernel == nullptr) refuse("an average", dtype);
  if (divisor <= 0) {
    throw Error(ErrorKind::kInvalidArgument, "an average over " + std::to_string(divisor) +
                                                 " values was asked for; it needs at least one.");
  }
  kernel(data, divisor, count);
}

void widen(DType dtype, const void* half, float* wide, std::size_t count) {
  const auto kernel = reduction::kernel_table().widen[index_of(dtype)];
  if (kernel == nullptr) refuse("widening to float32", dtype);
  kernel(half, wide, count);
}

void narrow(DType dtype, const float* wide, void* half, std::size_t count) {
  const auto kernel = reduction::kernel_table().narrow[index_of(dtype)];
  if (kernel == nullptr) refuse("narrowing from float32", dtype);
  kernel(wide, half, count);
}

}  // namespace altorch
