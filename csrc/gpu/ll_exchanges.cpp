// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/ll_exchanges.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/rounding.h"
#include "base/shape.h"
#include "gpu/host_staged/messages.h"
#include "gpu/host_staged/operands.h"
#include "gpu/host_staged/pieces.h"

namespace altorch {
namespace {

constexpr std::int64_t kWordsAtOnce = 512;   // a thread each
constexpr std::int64_t kLargestElement = 4;  // in words

std::uint32_t* number_at(const DeviceMemory& numbers, int index) {
  return reinterpret_cast<std::uint32_t*>(numbers.get()) + index;
}

}  // namespace

// An element of the largest type is never cut in two.
LlSlotShape LlSlotShape::of(std::size_t bytes, int parts, int blocks) {
  const std::int64_t words = divided_up(divided_up(static_cast<std::int64_t>(bytes), kDataBytes), parts);
  LlSlotShape shape;
  shape.blocks = blocks;
  shape.part =
      std::max<std::int64_t>(1, divided_up(divided_up(words, blocks), kLargestElement)) * kLargestElement;
  shape.region = shape.part * parts;
  shape.half = shape.region * blocks;
  return shape;
}

int LlSlotShape::blocks_for(std::int64_t bytes, std::int64_t room) const {
  const std::int64_t wanted = divided_up(divided_up(bytes, kDataBytes), std::min(room, kWordsAtOnce));
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, blocks));
}

LlSlotShape LlExchanges::pair_shape(int ranks, std::size_t bytes, int blocks) {
  return LlSlotShape::of(bytes, 1, std::max(1, blocks / ranks));
}

bool LlExchanges::fits(const Operation& operation, int ranks, std::size_t bytes) {
  const std::int64_t sent = bytes_of(operation, even_elements(operation, ranks));
  return sent > 0 && sent <= static_cast<std::int64_t>(bytes);
}

bool LlExchanges::goes_in_pairs(const Operation& operation, std::size_t pair_bytes) {
  const auto bytes = static_cast<std::size_t>(bytes_of(operation, operation.count));
  return exchanges(operation.kind) && bytes > 0 && bytes <= pair_bytes;
}

LlExchanges::LlExchanges(Device& device, Slots slots, int rank, int ranks, std::size_t pair_bytes,
                         const std::uint32_t* aborted)
    : device_(device),
      slots_(std::move(slots)),
      rank_(rank),
      ranks_(ranks),
      pair_bytes_(pair_bytes),
      aborted_(aborted),
      numbers_(device.allocate(
          sizeof(std::uint32_t) *
          static_cast<std::size_t>(LlExchange::kMostBlocks + ranks * slots_.pair_shape.blocks))) {
  device_.prepare_ll_moves();
}

void LlExchanges::enqueue(const Operation& operation, Stream stream) {
  const bool scattered = scatters(operation.kind), from_root = kOpKinds[operation.kind].input_at_root;
  const bool moves = !operation.reduces(), in_parts = slots_.for_all && scattered;
  const LlSlotShape& shape = slots_.shape;
  LlExchange job;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    job.send_slots[rank] = slots_.for_all ? slots_.send_slots.front() + (in_parts ? rank * shape.part : 0)
                                          : slots_.send_slots[index];
    job.receive_slots[rank] = slots_.receive_slots[index] + (in_parts ? rank_ * shape.part : 0);
  }
  job.send_slot_count = slots_.for_all && !scattered ? 1 : ranks_;
  job.numbers = number_at(numbers_, 0);
  job.aborted = aborted_;
  job.input = input_at(operation, 0);
  job.output = operation.output;
  job.half = shape.half;
  job.region = shape.region;
  // Moves are counted in bytes.
  job.count = moves ? bytes_of(operation, operation.count) : operation.count;
  job.stride = scattered ? operation.count : 0;
  job.own = scattered ? rank_ * operation.count : 0;
  job.sends_data = has_input(operation, rank_);
  job.receiver = kOpKinds[operation.kind].output_at_root ? operation.root : -1;
  job.wants = result_count(operation, rank_, ranks_) > 0;
  job.first = from_root ? operation.root : 0;
  job.behind = from_root ? operation.root + 1 : ranks_;
  job.rank = rank_;
  job.number = ranks_;
  job.scaled = operation.op == ReduceOp::kPremulSum && operation.reduces();
  job.blocks = shape.blocks_for(bytes_of(operation, operation.count), in_parts ? shape.part : shape.region);
  job.factor = operation.factor;
  job.poison = poison_of(operation.dtype);
  if (moves) {
    device_.move_ll(job, stream);
  } else {
    device_.reduce_ll(job, operation.dtype, operation.op, stream);
  }
}

std::optional<Operation> LlExchanges::enqueue_pairs(const Operation& operation, Stream stream) {
  const auto most = static_cast<std::int64_t>(pair_bytes_);
  if (!exchanges(operation.kind) || most == 0) return operation;
  const LlSlotShape& shape = slots_.pair_shape;
  bool left = false;
  PairExchange job;
  job.aborted = aborted_;
  job.poison = poison_of(operation.dtype);
  job.half = shape.half;
  job.region = shape.region;
  for_each_pair(operation, ranks_,
                [&](int peer, const void* input, std::int64_t sent, void* output, std::int64_t taken) {
                  const std::int64_t larger = std::max(sent, taken);
                  left |= larger > most;
                  if (larger == 0 || larger > most) return;
                  PairExchange::Pair& pair = job.pairs[job.number++];
                  pair.input = input;
                  pair.output = output;
                  pair.sent = static_cast<std::uint32_t>(sent);
                  pair.taken = static_cast<std::uint32_t>(taken);
                  pair.blocks = shape.blocks_for(larger, shape.region);
                  if (peer == rank_) return;
                  const auto index = static_cast<std::size_t>(peer);
                  pair.numbers = number_at(numbers_, LlExchange::kMostBlocks + peer * shape.blocks);
                  pair.send_slots = slots_.pair_send_slots[index];
                  pair.theirs = slots_.pair_receive_slots[index];
                });
  if (job.number > 0) device_.exchange_pairs(job, stream);
  if (!left) return std::nullopt;
  Operation rest = operation;
  rest.paired_bytes = most;
  return rest;
}

}  // namespace altorch
