// SPDX-License-Identifier: BSD-3-Clause
// Reductions by NCCL's types and operators, one element after another.
#include <cmath>

#include "reduction/reference.h"
#include "support/fake_nccl_parts.h"

namespace altorch::fake_nccl {
namespace {

using Parts = std::span<const std::shared_ptr<const Contribution>>;

template <typename Number>
struct Plain {
  using Value = Number;
  static constexpr bool kWhole = std::is_integral_v<Number>;
  using Wide = std::conditional_t<kWhole, __int128, double>;
  static Wide load(const void* data, std::size_t i) { return reference::get<Number>(data, i); }
  static void store(void* data, std::size_t i, Wide value) {
    reference::put<Number>(data, i, static_cast<Number>(value));
  }
};

template <DType kType>
struct Half {
  using Value = std::uint16_t;
  static constexpr bool kWhole = false;
  using Wide = double;
  static Wide load(const void* data, std::size_t i) {
    return reference::decode_half(kType, reference::get<std::uint16_t>(data, i));
  }
  static void store(void* data, std::size_t i, Wide value) {
    reference::put<std::uint16_t>(data, i, reference::encode_half(kType, value));
  }
};

// Calls `body` with the way in which a type is read and written.
template <typename Body>
auto with_type(int type, Body&& body) {
  switch (type) {
    case nccl::kInt8:
      return body(Plain<std::int8_t>());
    case nccl::kUint8:
      return body(Plain<std::uint8_t>());
    case nccl::kInt32:
      return body(Plain<std::int32_t>());
    case nccl::kUint32:
      return body(Plain<std::uint32_t>());
    case nccl::kInt64:
      return body(Plain<std::int64_t>());
    case nccl::kUint64:
      return body(Plain<std::uint64_t>());
    case nccl::kFloat16:
      return body(Half<DType::kFloat16>());
    case nccl::kBfloat16:
      return body(Half<DType::kBFloat16>());
    case nccl::kFloat64:
      return body(Plain<double>());
    default:
      return body(Plain<float>());
  }
}

template <typename Type>
typename Type::Wide element(Type, Parts all, std::size_t i) {
  using Wide = typename Type::Wide;
  Wide result = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Part& part = all[rank]->part;
    Wide value = Type::load(all[rank]->data.data(), i);
    if (part.op == kPremulSum) value = static_cast<Wide>(static_cast<double>(value) * part.factor);
    if (rank == 0) {
      result = value;
    } else if (part.op == nccl::kProd) {
      result *= value;
      // Wraps, as integers do.
      if constexpr (Type::kWhole) result = static_cast<typename Type::Value>(result);
    } else if (part.op == nccl::kMax || part.op == nccl::kMin) {
      if ((part.op == nccl::kMax) == (value > result)) result = value;
    } else {
      result += value;
    }
  }
  if (all[0]->part.op == nccl::kAvg) result /= static_cast<Wide>(all.size());
  return result;
}

}  // namespace

std::size_t bytes_of(int type) {
  return with_type(type, [](auto as) { return sizeof(typename decltype(as)::Value); });
}

double number_at(int type, const void* data) {
  return with_type(type, [&](auto as) { return static_cast<double>(decltype(as)::load(data, 0)); });
}

void compute(Parts all, int rank, void* output) {
  const auto own = static_cast<std::size_t>(rank);
  const Part& part = all[own]->part;
  const auto root = static_cast<std::size_t>(part.peer);
  switch (part.kind) {
    case Kind::kBroadcast:
      std::memmove(output, all[root]->data.data(), all[root]->data.size());
      return;
    case Kind::kAllGather:
      for (std::size_t i = 0; i < all.size(); ++i)
        std::memcpy(static_cast<char*>(output) + i * all[i]->data.size(), all[i]->data.data(),
                    all[i]->data.size());
      return;
    case Kind::kReduce:
      if (own != root) return;
      break;
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
    case Kind::kSend:
    case Kind::kReceive:
      break;
  }
  const std::size_t first = part.kind == Kind::kReduceScatter ? own * part.count : 0;
  with_type(part.type, [&](auto as) {
    for (std::size_t i = 0; i < part.count; ++i) decltype(as)::store(output, i, element(as, all, first + i));
  });
}

}  // namespace altorch::fake_nccl
