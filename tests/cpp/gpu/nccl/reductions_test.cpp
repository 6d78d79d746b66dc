// SPDX-License-Identifier: BSD-3-Clause
// What NcclComm has NCCL reduce, against float64.
#include <cmath>
#include <random>

#include "base/block_counts.h"
#include "gpu/nccl/nccl_ranks.h"
#include "reduction/reduce.h"
#include "reduction/reference.h"
#include "transports/channel.h"

namespace altorch::nccl {
namespace {

using Numbers = std::vector<double>;  // of a complex element two
using Bytes = std::vector<unsigned char>;

std::size_t parts_of(DType dtype) { return is_complex(dtype) ? 2 : 1; }

// Small whole numbers, so that no type rounds sums or overflows in products.
Numbers numbers(DType dtype, ReduceOp op, std::size_t elements, int rank, unsigned seed) {
  std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
  Numbers made(elements * parts_of(dtype));
  const bool is_signed = dtype != DType::kBool && kDTypes[dtype].number != NumberClass::kUnsigned;
  for (double& value : made) {
    const auto drawn = static_cast<int>(random() % 9);
    if (dtype == DType::kBool) {
      value = drawn % 2;
    } else if (op == ReduceOp::kProduct) {
      value = (is_signed && drawn % 3 == 0 ? -1 : 1) * (1 + drawn % 2);
    } else {
      value = is_signed ? drawn - 4 : drawn;
    }
  }
  return made;
}

template <typename Each>
void with_number(DType dtype, Each&& each) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return each(std::uint8_t());
    case DType::kInt8:
      return each(std::int8_t());
    case DType::kUInt32:
      return each(std::uint32_t());
    case DType::kInt32:
      return each(std::int32_t());
    case DType::kUInt64:
      return each(std::uint64_t());
    case DType::kInt64:
      return each(std::int64_t());
    case DType::kFloat64:
    case DType::kComplex128:
      return each(double());
    default:
      return each(float());
  }
}

Bytes encoded(DType dtype, const Numbers& values) {
  Bytes bytes(values.size() * size_of(dtype) / parts_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_half(dtype)) {
      reference::put<std::uint16_t>(bytes.data(), i, reference::encode_half(dtype, values[i]));
    } else {
      with_number(dtype, [&](auto as) {
        reference::put<decltype(as)>(bytes.data(), i, static_cast<decltype(as)>(values[i]));
      });
    }
  }
  return bytes;
}

double number_at(DType dtype, const unsigned char* data, std::size_t i) {
  double found = 0;
  if (is_half(dtype)) return reference::decode_half(dtype, reference::get<std::uint16_t>(data, i));
  with_number(dtype, [&](auto as) { found = static_cast<double>(reference::get<decltype(as)>(data, i)); });
  return found;
}

double factor_of(int rank) { return rank + 0.5; }

double wanted(DType dtype, ReduceOp op, const std::vector<Numbers>& all, std::size_t i) {
  if (op == ReduceOp::kBand) op = ReduceOp::kProduct;  // of bools, as NCCL has no bits
  if (op == ReduceOp::kBor) op = ReduceOp::kSum;
  double result = op == ReduceOp::kProduct ? 1 : op == ReduceOp::kMin || op == ReduceOp::kMax ? all[0][i] : 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const double value = all[rank][i];
    if (op == ReduceOp::kProduct) result *= value;
    if (op == ReduceOp::kMin) result = std::min(result, value);
    if (op == ReduceOp::kMax) result = std::max(result, value);
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg) result += value;
    if (op == ReduceOp::kPremulSum) result += value * factor_of(static_cast<int>(rank));
  }
  if (op == ReduceOp::kAvg) result /= static_cast<double>(all.size());
  if (dtype == DType::kBool) return result != 0;
  return is_integral(dtype) ? std::trunc(result) : result;
}

double margin(DType dtype, double want) {
  const double of_type = dtype == DType::kBFloat16  ? 1.0 / 128
                         : dtype == DType::kFloat16 ? 1.0 / 1024
                         : is_integral(dtype)       ? 0
                                                    : 1e-6;
  return std::fabs(want) * (dtype == DType::kFloat64 || dtype == DType::kComplex128 ? 1e-14 : of_type);
}

// One type, one operator, of so many elements: every kind of reduction, in place or not.
void reduces(const NcclRank& me, DType dtype, ReduceOp op, std::int64_t count, unsigned seed) {
  constexpr unsigned char kUntouched = 0xAB;
  const auto size = static_cast<std::int64_t>(me.size);
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < me.size; ++rank) counts.push_back((count + rank) % 5 * rank);
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
    for (const bool uneven : {false, true}) {
      if (uneven && kind != OpKind::kReduceScatter) continue;
      const bool scatters = kind == OpKind::kReduceScatter;
      const std::int64_t total = uneven ? block_offset(counts, 0, me.size) : scatters ? count * size : count;
      const std::int64_t begin =
          scatters ? block_offset(uneven ? std::span(counts) : std::span<std::int64_t>(), count, me.rank) : 0;
      const std::int64_t own =
          scatters ? (uneven ? counts[static_cast<std::size_t>(me.rank)] : count) : count;
      std::vector<Numbers> all;
      for (int rank = 0; rank < me.size; ++rank)
        all.push_back(numbers(dtype, op, static_cast<std::size_t>(total), rank, seed));
      for (const bool in_place : {false, true}) {
        const Bytes before = encoded(dtype, all[static_cast<std::size_t>(me.rank)]);
        Bytes input = before, apart(static_cast<std::size_t>(own) * size_of(dtype), kUntouched);
        unsigned char* output =
            in_place ? input.data() + static_cast<std::size_t>(begin) * size_of(dtype) : apart.data();
        Call call = call_of(kind, dtype, input.data(), output, own, static_cast<int>(seed) % me.size);
        call.op = op;
        call.factor = factor_of(me.rank);
        if (uneven) call.input_counts = counts;
        me.enqueue(call);
        me.finish();
        const std::string what = std::string(name_of(kind)) + (uneven ? " uneven " : " ") + name_of(op) +
                                 " of " + name_of(dtype) + " rank " + std::to_string(me.rank);
        const bool has_none = kind == OpKind::kReduce && me.rank != call.root;
        if (!in_place || has_none) {
          EXPECT_EQ(input, before) << what;
        }
        if (has_none) {
          EXPECT_EQ(apart, Bytes(apart.size(), kUntouched)) << what;
          continue;
        }
        const std::size_t parts = parts_of(dtype);
        // Goes on all the same, for the other ranks do.
        for (std::size_t i = 0; i < static_cast<std::size_t>(own) * parts; ++i) {
          const double want = wanted(dtype, op, all, static_cast<std::size_t>(begin) * parts + i);
          const double found = number_at(dtype, output, i);
          if (std::fabs(found - want) <= margin(dtype, want)) continue;
          ADD_FAILURE() << what << ": " << found << " at " << i << ", not " << want;
          break;
        }
      }
    }
  }
}

bool can(DType dtype, ReduceOp op) {
  Call call = call_of(OpKind::kAllReduce, dtype, nullptr, nullptr, 1);
  call.op = op;
  return can_reduce(dtype, op) && !NcclComm::unsupported_reason(call);
}

TEST(NcclReductions, AreThoseOfFloat64) {
  FakeNccl fake;
  for (const int size : {1, 2, 3}) {
    on_ranks(fake, size, [&](NcclRank& me) {
      int pairs = 0;
      unsigned seed = 1;
      for (const DType dtype : reference::all_dtypes()) {
        for (const ReduceOp op : reference::kAllOps) {
          if (!can(dtype, op)) continue;
          ++pairs;
          for (const std::int64_t count : {0, 1, 37}) reduces(me, dtype, op, count, ++seed);
        }
      }
      // Six integers by five operators, bool by six, four floats by six, two complex ones by two.
      EXPECT_EQ(pairs, 30 + 6 + 24 + 4);
    });
  }
}

TEST(NcclReductions, AreRefusedWhereNcclHasNone) {
  const auto why = [](OpKind kind, DType dtype, ReduceOp op) {
    Call call = call_of(kind, dtype, nullptr, nullptr, 1);
    call.op = op;
    return NcclComm::unsupported_reason(call).value_or("");
  };
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
    for (const DType dtype : {DType::kInt16, DType::kUInt16, DType::kFloat8E5M2})
      EXPECT_EQ(why(kind, dtype, ReduceOp::kSum),
                std::string("NCCL cannot reduce ") + name_of(dtype) + "; convert the tensor");
    EXPECT_EQ(why(kind, DType::kComplex64, ReduceOp::kProduct),
              "NCCL has no PRODUCT of complex64; use another reduction or .cpu()");
    for (const ReduceOp op : {ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor})
      EXPECT_TRUE(says(why(kind, DType::kInt32, op), "NCCL has no")) << name_of(op);
    EXPECT_EQ(why(kind, DType::kInt64, ReduceOp::kPremulSum),
              "NCCL has no PREMUL_SUM of int64; convert the tensor to a floating type");
    EXPECT_EQ(why(kind, DType::kBFloat16, ReduceOp::kPremulSum), "");
  }
  EXPECT_EQ(why(OpKind::kBroadcast, DType::kInt16, ReduceOp::kBxor), "") << "moved as bytes";
  Call any = call_of(OpKind::kReceive, DType::kFloat32, nullptr, nullptr, 1, kAnySource);
  EXPECT_TRUE(says(NcclComm::unsupported_reason(any).value_or(""), "named rank"));
}

// Operators are made for a call, and must not pile up.
TEST(NcclReductions, MakeAnOperatorForEachFactor) {
  FakeNccl fake;
  on_ranks(fake, 2, [&](NcclRank& me) {
    for (int i = 0; i < 5; ++i) {
      std::vector<float> values(10, 2.0f);
      Call call = sum_of(values);
      call.op = ReduceOp::kPremulSum;
      call.factor = me.rank + i;
      me.enqueue(call);
      me.finish();
      EXPECT_EQ(values, std::vector<float>(10, 2.0f * static_cast<float>(1 + 2 * i)));
    }
  });
  EXPECT_EQ(fake.calls("ncclRedOpCreatePreMulSum"), 10);
  EXPECT_EQ(fake.calls("ncclRedOpDestroy"), 10);
}

}  // namespace
}  // namespace altorch::nccl
