// SPDX-License-Identifier: BSD-3-Clause
#include "windows/device_jobs.h"

#include <string>

#include "reduction/reduce.h"

namespace altorch {

WindowMove only_raise(std::uint32_t* raised, WindowCount* count, const std::uint32_t* ended) {
  WindowMove job;
  job.rows = 0;
  job.raised = raised;
  job.count = count;
  job.ended = ended;
  return job;
}

WindowMove move_of(const WindowCall& call, std::byte* target, const std::uint32_t* ended) {
  std::byte* const theirs = target + call.offset;
  const bool puts = call.access == Access::kPut;
  WindowMove job;
  job.from = puts ? call.from : theirs;
  job.to = puts ? theirs : call.into;
  job.row_bytes = static_cast<std::int64_t>(call.row_bytes);
  job.rows = static_cast<std::int64_t>(call.rows);
  job.from_stride = static_cast<std::int64_t>(puts ? call.row_bytes : call.stride);
  job.to_stride = static_cast<std::int64_t>(puts ? call.stride : call.row_bytes);
  job.ended = ended;
  return job;
}

void check_update(const WindowCall& call) {
  if (call.dtype == DType::kComplex128 && call.op != ReduceOp::kSum)
    throw Error(ErrorKind::kUnsupported,
                std::string("complex128 can be accumulated on a GPU by SUM, not by ") + name_of(call.op));
}

namespace {

// The parts of a complex number are added each by itself.
DType added_as(DType dtype) { return dtype == DType::kComplex128 ? DType::kFloat64 : dtype; }

}  // namespace

void enqueue_update(Device& device, const WindowCall& call, std::byte* target, const std::uint32_t* ended) {
  check_update(call);
  if (call.bytes() == 0) return;
  const DType dtype = added_as(call.dtype);
  const std::size_t element = size_of(dtype);
  WindowUpdate job;
  job.from = call.from;
  job.to = target + call.offset;
  job.row = static_cast<std::int64_t>(call.row_bytes / element);
  job.rows = static_cast<std::int64_t>(call.rows);
  job.stride = static_cast<std::int64_t>(call.stride / element);
  job.ended = ended;
  device.update_window(job, dtype, call.op, call.stream);
}

void try_out_updates(Device& device, DType dtype, const std::uint32_t* ended, Stream stream) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                            ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor}) {
    if (!can_reduce(dtype, op) || (dtype == DType::kComplex128 && op != ReduceOp::kSum)) continue;
    device.prepare(added_as(dtype), op, Device::kUpdate);
    WindowUpdate nothing;
    nothing.ended = ended;
    device.update_window(nothing, added_as(dtype), op, stream);
  }
}

void enqueue_count(Device& device, const WindowCall& call, std::byte* target, std::int64_t* found,
                   std::uint32_t* answered, const std::uint32_t* ended) {
  WindowNumber job;
  job.at = target + call.offset;
  job.operand = call.operand;
  job.expected = call.expected;
  job.found = found;
  job.answered = answered;
  job.ended = ended;
  job.bytes = static_cast<int>(call.row_bytes);
  job.adds = call.access == Access::kFetchAdd;
  device.change_number(job, call.stream);
}

}  // namespace altorch
