// SPDX-License-Identifier: BSD-3-Clause
// How each kind of operation is said in NCCL's words. Everything runs between group_start and
// group_end.
#include <algorithm>
#include <cstring>

#include "base/shape.h"
#include "gpu/nccl/nccl_comm.h"
#include "reduction/reduce.h"
#include "transports/channel.h"

namespace altorch::nccl {
namespace {

// NCCL's type for a reduction, and how many of them make one element: 0 where it cannot reduce the
// type.
struct Numbers {
  int type = 0;
  std::int64_t factor = 0;
};
constexpr EnumTable<DType, Numbers> kNumbers(Numbers{}, {
                                                            {DType::kUInt8, {kUint8, 1}},
                                                            {DType::kInt8, {kInt8, 1}},
                                                            {DType::kUInt32, {kUint32, 1}},
                                                            {DType::kInt32, {kInt32, 1}},
                                                            {DType::kUInt64, {kUint64, 1}},
                                                            {DType::kInt64, {kInt64, 1}},
                                                            {DType::kBool, {kUint8, 1}},
                                                            {DType::kFloat16, {kFloat16, 1}},
                                                            {DType::kBFloat16, {kBfloat16, 1}},
                                                            {DType::kFloat32, {kFloat32, 1}},
                                                            {DType::kFloat64, {kFloat64, 1}},
                                                            {DType::kComplex64, {kFloat32, 2}},
                                                            {DType::kComplex128, {kFloat64, 2}},
                                                        });

constexpr int kNone = -1;
constexpr EnumTable<BinaryOp, int> kOperators(kNone, {
                                                         {BinaryOp::kSum, kSum},
                                                         {BinaryOp::kProduct, kProd},
                                                         {BinaryOp::kMin, kMin},
                                                         {BinaryOp::kMax, kMax},
                                                     });

// Complex numbers are reduced by parts; bools are bytes of 0 and 1. PREMUL_SUM is made for each
// call.
int operator_of(ReduceOp op, DType dtype) {
  const auto binary = binary_op_of(op, dtype);
  if (!binary || op == ReduceOp::kPremulSum) return kNone;
  if (op == ReduceOp::kAvg) return kAvg;
  if (is_complex(dtype) && binary != BinaryOp::kSum) return kNone;
  if (dtype == DType::kBool && binary == BinaryOp::kOr) return kMax;
  if (dtype == DType::kBool && binary == BinaryOp::kAnd) return kMin;
  return kOperators[*binary];
}

// The factor of PREMUL_SUM in the tensor's own type.
struct Scalar {
  alignas(8) unsigned char bytes[8] = {};
  Scalar(DType dtype, double value) {
    const auto put = [&](auto number) { std::memcpy(bytes, &number, sizeof number); };
    if (dtype == DType::kFloat64) put(value);
    if (dtype == DType::kFloat32) put(static_cast<float>(value));
    if (is_half(dtype)) {
      const auto wide = static_cast<float>(value);
      narrow(dtype, &wide, bytes, 1);
    }
  }
};

char* at(void* base, std::int64_t bytes) { return static_cast<char*>(base) + bytes; }
const char* at(const void* base, std::int64_t bytes) { return static_cast<const char*>(base) + bytes; }

}  // namespace

std::optional<std::string> NcclComm::unsupported_reason(const Call& operation) {
  if (operation.kind == OpKind::kReceive && operation.root == kAnySource) {
    return "NCCL receives from a named rank only; give recv a src";
  }
  if (is_scan(operation.kind)) return "NCCL has no scan";
  if (!operation.reduces()) return std::nullopt;
  const std::string what = std::string(name_of(operation.op)) + " of " + name_of(operation.dtype);
  if (kNumbers[operation.dtype].factor == 0) {
    return "NCCL cannot reduce " + std::string(name_of(operation.dtype)) + "; convert the tensor";
  }
  if (operation.op == ReduceOp::kPremulSum) {
    if (is_floating(operation.dtype)) return std::nullopt;
    return "NCCL has no " + what + "; convert the tensor to a floating type";
  }
  if (operator_of(operation.op, operation.dtype) == kNone)
    return "NCCL has no " + what + "; use another reduction or .cpu()";
  return std::nullopt;
}

bool NcclComm::is_one_call(const Call& operation) {
  return (operation.is_message() || all_know_sizes(operation.kind)) && !operation.uneven();
}

bool NcclComm::has_all_to_all(const Call& operation) const {
  if (!exchanges(operation.kind) || operation.uneven() || !table_.all_to_all) return false;
  return std::none_of(buffers_.begin(), buffers_.end(),
                      [](const auto& entry) { return entry.second.symmetric; });
}

void NcclComm::call(const Call& operation, void* stream) {
  const auto bytes = static_cast<std::size_t>(operation.count) * size_of(operation.dtype);
  switch (operation.kind) {
    case OpKind::kBroadcast:
      return check("ncclBroadcast", table_.broadcast(operation.output, operation.output, bytes, kUint8,
                                                     operation.root, comm_, stream));
    case OpKind::kAllGather:
      if (operation.uneven()) return all_gather_uneven(operation, stream);
      return check("ncclAllGather",
                   table_.all_gather(operation.input, operation.output, bytes, kUint8, comm_, stream));
    case OpKind::kAllToAll:
      // The same sends and receives within, so that a rank with uneven counts may meet one without.
      // With symmetric buffers NCCL may take copy engines for it, which meet no sends and receives.
      if (!has_all_to_all(operation)) return exchange(operation, stream);
      return check("ncclAlltoAll",
                   table_.all_to_all(operation.input, operation.output, bytes, kUint8, comm_, stream));
    case OpKind::kGather:
    case OpKind::kScatter:
      return exchange(operation, stream);
    case OpKind::kSend:
      return check("ncclSend", table_.send(operation.input, bytes, kUint8, operation.root, comm_, stream));
    case OpKind::kReceive:
      return check("ncclRecv",
                   table_.receive(operation.output, bytes, kUint8, operation.root, comm_, stream));
    case OpKind::kScan:  // unsupported_reason()
    case OpKind::kExscan:
    case OpKind::kOneSided:
    case OpKind::kBarrier:
      return;  // the caller's affair: it waits on the host
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
      break;
  }
  const Numbers numbers = kNumbers[operation.dtype];
  const auto count = static_cast<std::size_t>(operation.count * numbers.factor);
  int op = 0;
  if (operation.op == ReduceOp::kPremulSum) {
    Scalar scalar(operation.dtype, operation.factor);
    check("ncclRedOpCreatePreMulSum",
          table_.create_premul_sum(&op, scalar.bytes, numbers.type, kScalarHostImmediate, comm_));
  } else {
    op = operator_of(operation.op, operation.dtype);
  }
  if (operation.kind == OpKind::kAllReduce) {
    check("ncclAllReduce",
          table_.all_reduce(operation.input, operation.output, count, numbers.type, op, comm_, stream));
  } else if (operation.kind == OpKind::kReduce) {
    check("ncclReduce", table_.reduce(operation.input, operation.output, count, numbers.type, op,
                                      operation.root, comm_, stream));
  } else if (operation.uneven()) {
    reduce_scatter_uneven(operation, numbers.type, op, stream);
  } else {
    check("ncclReduceScatter",
          table_.reduce_scatter(operation.input, operation.output, count, numbers.type, op, comm_, stream));
  }
  if (operation.op == ReduceOp::kPremulSum) table_.destroy_op(op, comm_);
}

void NcclComm::reduce_scatter_uneven(const Call& operation, int type, int op, void* stream) {
  const std::int64_t factor = kNumbers[operation.dtype].factor;
  const auto element = static_cast<std::int64_t>(size_of(operation.dtype));
  std::int64_t offset = 0;
  for (int root = 0; root < size_; ++root) {
    const std::int64_t count = operation.input_counts[static_cast<std::size_t>(root)];
    check("ncclReduce",
          table_.reduce(at(operation.input, offset * element), operation.output,
                        static_cast<std::size_t>(count * factor), type, op, root, comm_, stream));
    offset += count;
  }
}

void NcclComm::all_gather_uneven(const Call& operation, void* stream) {
  const auto element = static_cast<std::int64_t>(size_of(operation.dtype));
  std::int64_t offset = 0;
  for (int root = 0; root < size_; ++root) {
    const std::int64_t bytes = operation.output_counts[static_cast<std::size_t>(root)] * element;
    check("ncclBroadcast", table_.broadcast(operation.input, at(operation.output, offset),
                                            static_cast<std::size_t>(bytes), kUint8, root, comm_, stream));
    offset += bytes;
  }
}

void NcclComm::exchange(const Call& operation, void* stream) {
  const auto element = static_cast<std::int64_t>(size_of(operation.dtype));
  std::int64_t from = 0, to = 0;  // blocks lie side by side
  for (int peer = 0; peer < size_; ++peer) {
    const std::int64_t sent = count_for(operation, rank_, peer).value_or(0) * element;
    const std::int64_t received = count_from(operation, rank_, peer).value_or(0) * element;
    const bool paired = exchanges(operation.kind) && std::max(sent, received) <= operation.paired_bytes;
    if (sent > 0 && !paired) {
      check("ncclSend", table_.send(at(operation.input, from), static_cast<std::size_t>(sent), kUint8, peer,
                                    comm_, stream));
    }
    if (received > 0 && !paired) {
      check("ncclRecv", table_.receive(at(operation.output, to), static_cast<std::size_t>(received), kUint8,
                                       peer, comm_, stream));
    }
    from += sent;
    to += received;
  }
}

}  // namespace altorch::nccl
