// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/fingerprint.h"

#include <bit>
#include <numeric>

#include "base/error.h"
#include "base/shape.h"

namespace altorch {
namespace {

// Layout, from the low end: count 35, on a GPU 1, root 14, op 4, dtype 5, kind 5 bits.
constexpr int kCountBits = 35, kDeviceBits = 1, kRootBits = 14, kOpBits = 4, kDTypeBits = 5;
constexpr std::uint64_t mask(int bits) { return (std::uint64_t{1} << bits) - 1; }
constexpr int kSequenceBits = 8, kFewestHashBits = 8;

// Every bit of the result depends on every bit of `bits` (the finalizer of SplitMix64).
constexpr std::uint64_t scattered(std::uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ull;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EBull;
  return bits ^ bits >> 31;
}

// Short rows as they are; of long ones what tells them apart.
constexpr std::uint64_t kLongRows = std::uint64_t{1} << (kRootBits - 1);
std::uint64_t rows_in_bits(std::int64_t row) {
  const auto elements = static_cast<std::uint64_t>(row);
  return elements < kLongRows ? elements : kLongRows | (scattered(elements) & (kLongRows - 1));
}
std::string rows_from_bits(std::uint64_t bits) {
  if (bits < kLongRows) return std::to_string(bits);
  return std::to_string(kLongRows) + " or more (kind " + std::to_string(bits - kLongRows) + ")";
}

// Where the ranks' splits may differ, one rank may call them even by chance, and only the root
// knows the others' blocks.
std::uint64_t agreed_count(const Operation& operation, bool even) {
  if (!even && operation.is_collective() && !all_know_sizes(operation.kind)) return 0;
  if (!operation.uneven()) return static_cast<std::uint64_t>(operation.count);
  const auto counts = block_counts(operation);
  return static_cast<std::uint64_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

}  // namespace

std::uint64_t fingerprint(const Operation& operation, bool even) {
  const bool rooted = is_rooted(operation.kind);
  std::uint64_t bits = static_cast<std::uint64_t>(operation.kind);
  bits = bits << kDTypeBits | static_cast<std::uint64_t>(operation.dtype);
  bits = bits << kOpBits | (operation.reduces() ? static_cast<std::uint64_t>(operation.op) : 0);
  // What has no root has room for what comes behind it.
  const std::uint64_t root =
      rooted ? static_cast<std::uint64_t>(operation.root) : rows_in_bits(operation.norm_row);
  bits = bits << kRootBits | (root & mask(kRootBits));
  bits = bits << kDeviceBits | (operation.on_gpu() ? 1 : 0);
  return bits << kCountBits | (agreed_count(operation, even) & mask(kCountBits));
}

Operation remembered(const Operation& operation) {
  Operation copy = operation;
  if (operation.uneven()) copy.count = static_cast<std::int64_t>(agreed_count(operation, /*even=*/false));
  copy.input = nullptr;
  copy.output = nullptr;
  copy.input_counts = copy.output_counts = {};
  copy.norm = nullptr;
  return copy;
}

std::string describe_fingerprint(std::uint64_t bits) {
  if (bits == CallNote::kRefused) return "an operation that it refused";
  const auto count = bits & mask(kCountBits);
  bits >>= kCountBits;
  const bool on_gpu = bits & mask(kDeviceBits);
  bits >>= kDeviceBits;
  const auto root = bits & mask(kRootBits);
  bits >>= kRootBits;
  const auto op = static_cast<ReduceOp>(bits & mask(kOpBits));
  bits >>= kOpBits;
  const auto dtype = static_cast<DType>(bits & mask(kDTypeBits));
  const auto kind = static_cast<OpKind>(bits >> kDTypeBits);
  if (static_cast<int>(op) >= kReduceOpCount || static_cast<int>(dtype) >= kDTypeCount ||
      static_cast<int>(kind) >= kOpKindCount)
    return "something that is no operation";
  std::string text = name_of(kind);
  if (kind == OpKind::kBarrier) return text;
  if (reduces(kind)) text += std::string("(") + name_of(op) + ")";
  text += " of ";
  if (count > 0) text += std::to_string(count) + " ";
  text += name_of(dtype);
  if (is_rooted(kind)) text += " with root " + std::to_string(root);
  if (!is_rooted(kind) && root > 0) text += " and a norm of rows of " + rows_from_bits(root) + " behind it";
  if (on_gpu) text += " on a GPU";
  return text;
}

std::uint64_t append_call(std::uint64_t history, std::uint64_t fingerprint) {
  return scattered(history ^ scattered(fingerprint + 0x9E3779B97F4A7C15ull));
}

// Few bits of the number suffice: messages with equal tags arrive in order, so that only ranks that
// disagree need to be told apart, and those differ in the history.
std::int64_t collective_tag(const Operation& operation, std::uint64_t fingerprint, int bits) {
  const int hash_bits = bits - kSequenceBits;
  if (hash_bits < kFewestHashBits) {
    throw Error(ErrorKind::kUnsupported, "the tags of this MPI have " + std::to_string(bits) +
                                             " bits for a collective, and telling calls apart takes " +
                                             std::to_string(kSequenceBits + kFewestHashBits) +
                                             "; use another MPI, or ALTORCH_MPI=none for Gloo");
  }
  const std::uint64_t hash = append_call(operation.history, fingerprint) >> (64 - hash_bits);
  return static_cast<std::int64_t>(hash << kSequenceBits | (operation.sequence & mask(kSequenceBits)));
}

}  // namespace altorch
