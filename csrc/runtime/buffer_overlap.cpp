// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/buffer_overlap.h"

#include <cstdint>

#include "base/shape.h"

namespace altorch {
namespace {

struct Span {
  std::uintptr_t begin = 0, bytes = 0;

  bool meets(const Span& other) const {
    return bytes > 0 && other.bytes > 0 && begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
};

Span span_of(const Call& call, const void* memory, std::int64_t offset, std::int64_t count) {
  const std::uintptr_t element = size_of(call.dtype);
  return {reinterpret_cast<std::uintptr_t>(memory) + static_cast<std::uintptr_t>(offset) * element,
          static_cast<std::uintptr_t>(count) * element};
}

}  // namespace

std::size_t input_bytes(const Call& call, int rank, int size) {
  return static_cast<std::size_t>(elements_of(call, rank, size).input.value_or(0)) * size_of(call.dtype);
}

bool blocks_overwrite_their_input(const Call& call, int rank, int size) {
  const Elements elements = elements_of(call, rank, size);
  if (!elements.input || !elements.output) return false;  // has one buffer only
  if (!span_of(call, call.input, 0, *elements.input).meets(span_of(call, call.output, 0, *elements.output)))
    return false;
  if (exchanges(call.kind)) return true;
  // One buffer is one block. It may be the own block of the other.
  return span_of(call, call.input, part_for(call, rank, rank)->begin, 0).begin !=
         span_of(call, call.output, part_from(call, rank, rank)->begin, 0).begin;
}

}  // namespace altorch
