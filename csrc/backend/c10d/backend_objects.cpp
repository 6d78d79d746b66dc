// SPDX-License-Identifier: BSD-3-Clause
// Bytes whose number differs by rank, for altorch.objects.
#include <algorithm>
#include <functional>
#include <numeric>

#include "backend/c10d/issue.h"

namespace altorch::backend {
namespace {

constexpr char kObject[] = "scatter_object_list";  // what such messages are of

c10d::OpType op_type_of(OpKind kind) {
  switch (kind) {
    case OpKind::kAllGather:
      return c10d::OpType::ALLGATHER;
    case OpKind::kGather:
      return c10d::OpType::GATHER;
    case OpKind::kScatter:
      return c10d::OpType::SCATTER;
    case OpKind::kBroadcast:
      return c10d::OpType::BROADCAST;
    default:
      throw Error(ErrorKind::kInternal, std::string("bytes do not move by ") + name_of(kind));
  }
}

// Its memory, if it has as many bytes as that.
void* memory_of(const at::Tensor& bytes, std::int64_t expected) {
  if (bytes.numel() != expected) {
    throw Error(ErrorKind::kInternal, "a buffer of " + std::to_string(bytes.numel()) + " bytes, where " +
                                          std::to_string(expected) + " are expected");
  }
  return bytes.data_ptr();
}

}  // namespace

void AlBackend::move_bytes(OpKind kind, int root, const at::Tensor& input, const at::Tensor& output,
                           const std::vector<std::int64_t>& counts) {
  issue(op_type_of(kind), kind, kHostDevice, std::chrono::milliseconds(0), /*async=*/false,
        [&](PreparedCall& call) {
          check_rank(root, "the root");
          Operation& operation = call.operation;
          operation.dtype = DType::kUInt8;
          operation.root = kind == OpKind::kAllGather ? 0 : root;
          call.touch(input, output);
          if (kind == OpKind::kBroadcast) {
            operation.count = output.numel();
            operation.output = output.data_ptr();
            return;
          }
          if (kind == OpKind::kScatter) {
            operation.count = output.numel();
            operation.output = output.data_ptr();
            if (root == getRank()) operation.input = memory_of(input, output.numel() * getSize());
            return;
          }
          if (static_cast<int>(counts.size()) != getSize())
            throw Error(ErrorKind::kInternal, "a count for each rank is expected");
          operation.count = counts[static_cast<std::size_t>(getRank())];
          operation.input = memory_of(input, operation.count);
          if (kind == OpKind::kAllGather || root == getRank())
            operation.output =
                memory_of(output, std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
          // Uneven on all ranks alike: every rank then chooses an algorithm for uneven blocks.
          if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) != counts.end())
            call.output_counts = counts;
        });
}

AlBackend::WorkPtr AlBackend::send_bytes(const at::Tensor& bytes, int peer) {
  return called([&] { return message(c10d::OpType::SEND, OpKind::kSend, bytes, peer, 0, kObject); });
}

AlBackend::WorkPtr AlBackend::receive_bytes(const at::Tensor& bytes, int peer) {
  return called([&] { return message(c10d::OpType::RECV, OpKind::kReceive, bytes, peer, 0, kObject); });
}

}  // namespace altorch::backend
