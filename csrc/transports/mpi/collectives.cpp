// SPDX-License-Identifier: BSD-3-Clause
#include "transports/mpi/collectives.h"

#include <climits>
#include <memory>
#include <optional>

#include "base/block_counts.h"
#include "base/shape.h"
#include "transports/mpi/mpi_entry.h"
#include "transports/mpi/reductions.h"
#include "transports/mpi/request_extra.h"

namespace altorch {
namespace {

// For a reduction. What MPI has no type or operator for, our own algorithms reduce.
using mpi::kNone, mpi::kOperators, mpi::kTypes;

// bool is stored as 0 and 1, so that the bit operators are the logical ones. MPI's minimum and
// maximum take no care of NaN, its bits are those of integers, and its product of complex numbers
// is not torch's.
int operator_of(ReduceOp op, DType dtype) {
  const auto binary = binary_op_of(op, dtype);
  if (!binary) return kNone;
  const bool any_type = binary == BinaryOp::kSum || (binary == BinaryOp::kProduct && !is_complex(dtype));
  if (!any_type && !is_integral(dtype) && dtype != DType::kBool) return kNone;
  return kOperators[*binary];
}

// To move an element, any MPI type of its size does.
AltorchMpiType moving_type(DType dtype) {
  switch (size_of(dtype)) {
    case 1:
      return ALTORCH_MPI_UINT8;
    case 2:
      return ALTORCH_MPI_UINT16;
    case 4:
      return ALTORCH_MPI_UINT32;
    case 8:
      return ALTORCH_MPI_UINT64;
    default:
      return ALTORCH_MPI_COMPLEX128;
  }
}

// MPI wants ints. The caller has checked the total.
void narrow(std::span<const std::int64_t> counts, std::int64_t even, int size, std::vector<int>& out,
            std::vector<int>& offsets) {
  int offset = 0;
  for (int i = 0; i < size; ++i) {
    out.push_back(static_cast<int>(block_count(counts, even, i)));
    offsets.push_back(offset);
    offset += out.back();
  }
}

}  // namespace

MpiCollectives::MpiCollectives(Mpi& mpi, std::intptr_t communicator, Channel& channel)
    : mpi_(mpi),
      communicator_(communicator),
      channel_(channel),
      rank_(channel.rank()),
      size_(channel.size()) {}

bool MpiCollectives::has(const Call& call, int size) {
  if (call.reduces() && (kTypes[call.dtype] == kNone || operator_of(call.op, call.dtype) == kNone))
    return false;
  if (!call.is_collective() || is_scan(call.kind)) return false;
  // Uneven totals differ between ranks, so that only an even exchange can be judged alike
  // everywhere.
  if (exchanges(call.kind) && call.uneven()) return false;
  return (has_blocks(call.kind) ? block_offset(block_counts(call), call.count, size) : call.count) <= INT_MAX;
}

void MpiCollectives::start(const Call& call, std::uint64_t, std::string_view, Request& request) {
  request = Request{};
  request.exact = false;
  // Made only where MPI or test() need more than the handle.
  auto extra = [&]() -> RequestExtra& {
    if (request.extra == nullptr) request.extra = new RequestExtra;
    return *static_cast<RequestExtra*>(request.extra);
  };
  if (!mpi_.usable()) {
    extra().failure = mpi_.not_usable();
    return;
  }
  const AltorchMpiTable& table = mpi_.table();
  const int type = call.reduces() ? kTypes[call.dtype] : moving_type(call.dtype);
  const int op = call.reduces() ? operator_of(call.op, call.dtype) : 0;
  const int count = static_cast<int>(call.count);
  const std::size_t element = size_of(call.dtype);
  const bool is_root = call.root == rank_;
  // Empty tensors have null addresses, which the table takes for MPI_IN_PLACE.
  static std::byte nothing;
  const void* whole_input = call.input != nullptr ? call.input : &nothing;
  auto* output = call.output != nullptr ? static_cast<std::byte*>(call.output) : &nothing;
  std::intptr_t handle = 0;
  int error = 0;
  const char* function = "";

  auto own_block = [&](const void* base, std::span<const std::int64_t> counts) {
    return static_cast<const std::byte*>(base) +
           static_cast<std::size_t>(block_offset(counts, call.count, rank_)) * element;
  };
  auto too_large = [&](std::span<const std::int64_t> counts) {
    if (!is_root || block_offset(counts, call.count, size_) <= INT_MAX) return false;
    extra().failure = Error(ErrorKind::kUnsupported,
                            "More than INT_MAX elements in one MPI collective; set ALTORCH_ROUTE "
                            "to one of altorch's own algorithms.");
    return true;
  };

  const MpiEntry entry(mpi_);
  if (!entry) {
    extra().failure = entry.refusal();
    return;
  }
  switch (call.kind) {
    case OpKind::kBarrier:
      function = "MPI_Ibarrier";
      error = table.ibarrier(communicator_, &handle);
      break;
    case OpKind::kAllReduce:
      function = "MPI_Iallreduce";
      error = table.iallreduce(nullptr, output, count, type, op, communicator_, &handle);
      break;
    case OpKind::kReduce: {
      function = "MPI_Ireduce";
      const void* input = is_root && call.input == call.output ? nullptr : whole_input;
      error = table.ireduce(input, output, count, type, op, call.root, communicator_, &handle);
      break;
    }
    case OpKind::kBroadcast:
      function = "MPI_Ibcast";
      error = table.ibcast(output, count, type, call.root, communicator_, &handle);
      break;
    case OpKind::kAllGather: {
      const void* input = call.input == own_block(output, call.output_counts) ? nullptr : whole_input;
      if (call.output_counts.empty()) {
        function = "MPI_Iallgather";
        error = table.iallgather(input, output, count, type, communicator_, &handle);
        break;
      }
      function = "MPI_Iallgatherv";
      narrow(call.output_counts, call.count, size_, extra().counts, extra().offsets);
      error = table.iallgatherv(input, extra().counts[static_cast<std::size_t>(rank_)], output,
                                extra().counts.data(), extra().offsets.data(), type, communicator_, &handle);
      break;
    }
    case OpKind::kReduceScatter: {
      // MPI forbids that the result overlaps the input, torch does not.
      std::byte* target = output;
      if (output == own_block(whole_input, call.input_counts)) {
        extra().copy_bytes =
            static_cast<std::size_t>(block_count(call.input_counts, call.count, rank_)) * element;
        extra().copy_to = output;
        extra().bounce = std::make_unique_for_overwrite<std::byte[]>(extra().copy_bytes);
        target = extra().bounce.get();
      }
      if (call.input_counts.empty()) {
        function = "MPI_Ireduce_scatter_block";
        error = table.ireduce_scatter_block(whole_input, target, count, type, op, communicator_, &handle);
        break;
      }
      function = "MPI_Ireduce_scatter";
      narrow(call.input_counts, call.count, size_, extra().counts, extra().offsets);
      error =
          table.ireduce_scatter(whole_input, target, extra().counts.data(), type, op, communicator_, &handle);
      break;
    }
    case OpKind::kAllToAll:
      function = "MPI_Ialltoall";
      error = table.ialltoall(whole_input, output, count, type, communicator_, &handle);
      break;
    // The even forms of gather and scatter would need every rank to know that the call is even.
    case OpKind::kGather: {
      if (too_large(call.output_counts)) return;
      function = "MPI_Igatherv";
      const void* input = whole_input;
      int own = static_cast<int>(block_count(call.output_counts, call.count, rank_));
      if (is_root) {
        narrow(call.output_counts, call.count, size_, extra().counts, extra().offsets);
        if (input == own_block(output, call.output_counts)) input = nullptr;
      }
      error = table.igatherv(input, own, output, extra().counts.data(), extra().offsets.data(), type,
                             call.root, communicator_, &handle);
      break;
    }
    case OpKind::kScatter: {
      if (too_large(call.input_counts)) return;
      function = "MPI_Iscatterv";
      void* target = output;
      int own = static_cast<int>(block_count(call.input_counts, call.count, rank_));
      if (is_root) {
        narrow(call.input_counts, call.count, size_, extra().counts, extra().offsets);
        if (output == own_block(whole_input, call.input_counts)) target = nullptr;
      }
      error = table.iscatterv(whole_input, extra().counts.data(), extra().offsets.data(), target, own, type,
                              call.root, communicator_, &handle);
      break;
    }
    case OpKind::kScan:
    case OpKind::kExscan:
    case OpKind::kSend:
    case OpKind::kReceive:
    case OpKind::kOneSided:
      extra().failure =
          Error(ErrorKind::kInternal, std::string("MPI has no collective for ") + name_of(call.kind) + ".");
  }
  if (error != 0) {
    extra().failure = Error(ErrorKind::kTransport, mpi_.describe(function, error));
  }
  request.handle = static_cast<std::uintptr_t>(handle);
}

}  // namespace altorch
