// SPDX-License-Identifier: BSD-3-Clause
// Operations of the fake NCCL: put on streams at once, or when their group ends.
#include <utility>

#include "support/fake_nccl_host.h"

namespace altorch::fake_nccl {
namespace {

// What a thread has put between group_start and group_end.
struct Grouped {
  FakeComm* comm;
  Part part;
  Stream stream;
};
thread_local int group_depth = 0;
thread_local std::vector<Grouped> grouped;
thread_local Result group_error = kSuccess;

Result enqueue(const char* name, Comm handle, Part part, Stream stream) {
  return call_of(name, handle, [&](FakeComm& comm, Lock&) {
    if (part.op > kPremulSum) {
      const auto found = comm.factors.find(part.op);
      if (found == comm.factors.end()) return kInvalidArgument;
      part.factor = found->second;
      part.op = kPremulSum;
    }
    if (part.peer < 0 || part.peer >= comm.team->size) return kInvalidArgument;
    if (part.count == 0 && !part.is_message()) return kSuccess;
    if (group_depth > 0) {
      grouped.push_back({&comm, part, stream});
    } else {
      if (part.is_message() && part.peer == comm.rank) return kInvalidUsage;
      launch(*comm.state, comm, {part}, stream);
    }
    return kSuccess;
  });
}

Result group_start() {
  ++group_depth;
  return call("ncclGroupStart", nullptr, -1, [](Lock&) { return kSuccess; });
}

// Launches what was grouped: for each communicator and stream one kernel.
Result group_end() {
  if (--group_depth > 0) return kSuccess;
  std::vector<Grouped> all = std::move(grouped);
  grouped.clear();
  const Result error = std::exchange(group_error, kSuccess);
  if (error != kSuccess) all.clear();  // nothing of it begins
  FakeComm* first = all.empty() ? nullptr : all.front().comm;
  return call("ncclGroupEnd", first, first ? first->rank : -1, [&](Lock&) {
    if (error != kSuccess) return error;
    while (!all.empty()) {
      FakeComm* comm = all.front().comm;
      const Stream stream = all.front().stream;
      std::vector<Part> parts;
      std::erase_if(all, [&](const Grouped& each) {
        if (each.comm != comm || each.stream != stream) return false;
        parts.push_back(each.part);
        return true;
      });
      if (comm->ended) return Result{kInvalidArgument};
      launch(*comm->state, *comm, std::move(parts), stream);
    }
    return kSuccess;
  });
}

Result all_reduce(const void* input, void* output, std::size_t count, int type, int op, Comm comm,
                  Stream stream) {
  return enqueue("ncclAllReduce", comm, {Kind::kAllReduce, input, output, count, type, op}, stream);
}
Result reduce(const void* input, void* output, std::size_t count, int type, int op, int root, Comm comm,
              Stream stream) {
  return enqueue("ncclReduce", comm, {Kind::kReduce, input, output, count, type, op, 1.0, root}, stream);
}
Result broadcast(const void* input, void* output, std::size_t count, int type, int root, Comm comm,
                 Stream stream) {
  return enqueue("ncclBroadcast", comm, {Kind::kBroadcast, input, output, count, type, 0, 1.0, root}, stream);
}
Result all_gather(const void* input, void* output, std::size_t count, int type, Comm comm, Stream stream) {
  return enqueue("ncclAllGather", comm, {Kind::kAllGather, input, output, count, type}, stream);
}
Result reduce_scatter(const void* input, void* output, std::size_t count, int type, int op, Comm comm,
                      Stream stream) {
  return enqueue("ncclReduceScatter", comm, {Kind::kReduceScatter, input, output, count, type, op}, stream);
}
Result send(const void* data, std::size_t count, int type, int peer, Comm comm, Stream stream) {
  return enqueue("ncclSend", comm, {Kind::kSend, data, nullptr, count, type, 0, 1.0, peer}, stream);
}
Result receive(void* data, std::size_t count, int type, int peer, Comm comm, Stream stream) {
  return enqueue("ncclRecv", comm, {Kind::kReceive, nullptr, data, count, type, 0, 1.0, peer}, stream);
}

// Sends and receives, as NCCL has it.
Result all_to_all(const void* input, void* output, std::size_t count, int type, Comm handle, Stream stream) {
  return call_of("ncclAlltoAll", handle, [&](FakeComm& comm, Lock&) {
    const std::size_t bytes = count * bytes_of(type);
    std::vector<Part> parts;
    for (int peer = 0; peer < comm.team->size; ++peer) {
      const std::size_t offset = static_cast<std::size_t>(peer) * bytes;
      parts.push_back(
          {Kind::kSend, static_cast<const char*>(input) + offset, nullptr, count, type, 0, 1.0, peer});
      parts.push_back(
          {Kind::kReceive, nullptr, static_cast<char*>(output) + offset, count, type, 0, 1.0, peer});
    }
    if (count > 0 && group_depth == 0) launch(*comm.state, comm, std::move(parts), stream);
    for (Part& part : parts) grouped.push_back({&comm, part, stream});
    return kSuccess;
  });
}

Result create_premul_sum(int* op, void* scalar, int type, int residence, Comm handle) {
  return call_of("ncclRedOpCreatePreMulSum", handle, [&](FakeComm& comm, Lock&) {
    if (residence != nccl::kScalarHostImmediate) return kInvalidArgument;
    *op = comm.next_op++;
    comm.factors[*op] = number_at(type, scalar);
    return kSuccess;
  });
}

Result destroy_op(int op, Comm handle) {
  return call_of("ncclRedOpDestroy", handle, [&](FakeComm& comm, Lock&) {
    return comm.factors.erase(op) == 1 ? kSuccess : kInvalidArgument;
  });
}

}  // namespace

Result keep_for_group(Result result) {
  if (group_depth > 0 && result != kSuccess) group_error = result;
  return result;
}

void add_operations(nccl::Table& table) {
  table.group_start = group_start;
  table.group_end = group_end;
  table.all_reduce = all_reduce;
  table.reduce = reduce;
  table.broadcast = broadcast;
  table.all_gather = all_gather;
  table.reduce_scatter = reduce_scatter;
  table.send = send;
  table.receive = receive;
  table.all_to_all = all_to_all;
  table.create_premul_sum = create_premul_sum;
  table.destroy_op = destroy_op;
}

}  // namespace altorch::fake_nccl
