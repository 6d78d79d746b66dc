// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/peer/normed_sums.h"

#include "base/dtype.h"
#include "base/rms_norm.h"
#include "base/rounding.h"
#include "gpu/host_staged/operands.h"

namespace altorch {
namespace {

// Of a block of threads, which has them one after another. Narrow ones, of which there are many,
// leave most threads idle.
constexpr std::int64_t kMaxNormRows = 8;

std::int64_t rows_of_block(std::int64_t rows, const LlSlotShape& shape) {
  return divided_up(rows, static_cast<std::int64_t>(shape.blocks));
}

}  // namespace

NormedSums::NormedSums(Device& device, Slots slots, int rank, int ranks, const std::uint32_t* aborted)
    : device_(device),
      slots_(std::move(slots)),
      rank_(rank),
      ranks_(ranks),
      aborted_(aborted),
      numbers_(device.allocate(sizeof(std::uint32_t) * static_cast<std::size_t>(slots_.shape.blocks))) {}

bool NormedSums::fits(const Operation& operation, const LlSlotShape& shape) {
  if (operation.kind != OpKind::kAllReduce || operation.op != ReduceOp::kSum || operation.norm_row == 0 ||
      !is_floating(operation.dtype))
    return false;
  const std::int64_t row = operation.norm_row;
  if (operation.count == 0 || operation.count % row != 0) return false;
  const std::int64_t bytes = bytes_of(operation, row), word = LlSlotShape::kDataBytes;
  const std::int64_t rows = rows_of_block(operation.count / row, shape);
  return bytes % word == 0 && rows <= kMaxNormRows && rows * bytes <= shape.region * word;
}

void NormedSums::enqueue(const Operation& operation, Stream stream) {
  const RmsNorm& norm = *operation.norm;
  const std::int64_t rows = operation.count / operation.norm_row;
  NormedSum job;
  LlExchange& small = job.exchange;
  for (int rank = 0; rank < ranks_; ++rank) {
    small.send_slots[rank] = slots_.send_slots[static_cast<std::size_t>(rank)];
    small.receive_slots[rank] = slots_.receive_slots[static_cast<std::size_t>(rank)];
  }
  small.numbers = reinterpret_cast<std::uint32_t*>(numbers_.get());
  small.aborted = aborted_;
  small.input = input_at(operation, 0);
  small.output = operation.output;
  small.half = slots_.shape.half;
  small.region = slots_.shape.region;
  small.count = operation.count;
  small.behind = ranks_;
  small.rank = rank_;
  small.number = ranks_;
  small.send_slot_count = ranks_;
  small.blocks = static_cast<int>(divided_up(rows, rows_of_block(rows, slots_.shape)));
  small.poison = poison_of(operation.dtype);
  job.residual = norm.residual;
  job.weight = norm.weight;
  job.summed = norm.summed;
  job.row = operation.norm_row;
  job.epsilon = norm.epsilon;
  device_.sum_and_norm(job, operation.dtype, stream);
}

}  // namespace altorch
