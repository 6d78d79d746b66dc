// SPDX-License-Identifier: BSD-3-Clause
// How HostStaged carries a collective that is not small: piece by piece.
#include <algorithm>

#include "base/block_counts.h"
#include "base/shape.h"
#include "gpu/host_staged/host_staged.h"
#include "gpu/host_staged/operands.h"

namespace altorch {
namespace {

constexpr std::size_t kLargestElement = 16;
// A block is cut into this many pieces, so that what goes down and what comes up overlap, unless
// the copies would be smaller than this: their flags would cost too much.
constexpr std::int64_t kPieces = 4;
constexpr std::size_t kSmallestCopy = 1 << 20;
// Of more pieces, copies down and up take turns on the same streams.
constexpr std::size_t kManyPieces = 16;

std::int64_t aligned(std::int64_t elements) { return (elements + kAligned - 1) / kAligned * kAligned; }

std::size_t one_scratch(const BoardLayout& layout) {
  return layout.slot_bytes + static_cast<std::size_t>(layout.ranks * kAligned) * kLargestElement;
}

}  // namespace

std::size_t HostStaged::scratch_bytes(const BoardLayout& layout) {
  return layout.slots * one_scratch(layout);
}

std::int64_t HostStaged::step_of(const Operation& operation, int size, std::size_t slot_bytes) {
  const int blocks = scatters(operation.kind) ? size : 1;  // in a slot
  const auto step = [&](std::size_t bytes) { return PieceCutter::step_for(bytes, operation.dtype, blocks); };
  const std::int64_t most = step(slot_bytes);
  const std::int64_t longest = longest_block(operation);
  // One piece is reduced where it lies, which takes less than copying it in.
  if (operation.reduces() && longest <= most) return most;
  const std::int64_t least = step(std::min(static_cast<std::size_t>(blocks) * kSmallestCopy, slot_bytes));
  return std::clamp(aligned((longest + kPieces - 1) / kPieces), least, most);
}

void HostStaged::wait_for_all(Flag Board::Post::*flag, std::uint32_t value, std::size_t slot, Stream stream) {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) wait_for(board_.post(rank, slot).*flag, value, stream);
  }
}

PieceCutter HostStaged::cut(const Operation& operation) const {
  return {operation, rank_, size_, step_of(operation, size_, board_.layout().slot_bytes)};
}

void HostStaged::collective(const Operation& operation, Stream stream) {
  if (is_scan(operation.kind)) throw Error(ErrorKind::kInternal, "host_staged has no scan");
  const PieceCutter cutter = cut(operation);
  const auto pieces = static_cast<std::size_t>(cutter.pieces());
  if (overlap(pieces) && operation.kind == OpKind::kAllReduce) return reduce_and_gather(operation, stream);
  const Lanes lanes = fork(operation, pieces, stream);
  SideStreams::Join join(sides_, stream, lanes.streams);
  enqueue_pieces(operation, cutter, lanes);
  join.now();
}

HostStaged::Lanes HostStaged::fork(const Operation& operation, std::size_t pieces, Stream stream) {
  Lanes lanes;
  lanes.downs = two_steps_pay(operation, pieces) ? 0 : kLanes;
  lanes.ups = operation.reduces() ? std::min(board_.layout().slots, pieces) : kLanes;
  lanes.streams = sides_.fork(stream, overlap(pieces) ? lanes.downs + lanes.ups : 0);
  return lanes;
}

bool HostStaged::two_steps_pay(const Operation& operation, std::size_t pieces) const {
  // With a few pieces the copies down must not wait for those up; with many, streams of their own
  // would be the ones that wait.
  return operation.reduces() && pieces > kManyPieces;
}

void HostStaged::enqueue_pieces(const Operation& operation, const PieceCutter& cutter, const Lanes& lanes,
                                const Source& source) {
  const bool overlaps = overlap(static_cast<std::size_t>(cutter.pieces()));
  if (operation.reduces()) device_->prepare(operation.dtype, operation.op, Device::kParts);
  for (std::int64_t index = 0; index < cutter.pieces(); ++index) {
    const std::uint64_t number = pieces_.load() + 1;
    pieces_.store(number);
    const std::size_t up = static_cast<std::size_t>(index) % lanes.ups;
    const PieceTransfer transfer{
        operation,
        cutter,
        index,
        static_cast<std::uint32_t>(number),
        number % board_.layout().slots,
        lanes.streams[lanes.downs ? static_cast<std::size_t>(index) % lanes.downs : up],
        lanes.streams[lanes.downs + up],
        overlaps ? scratch_.get() + up * one_scratch(board_.layout()) : nullptr};
    wait_for_source(source, cutter, transfer);
    post(transfer);
    if (operation.reduces()) reduce(transfer);
    collect(transfer);
  }
}

void HostStaged::wait_for_source(const Source& source, const PieceCutter& cutter,
                                 const PieceTransfer& transfer) {
  if (!source.step) return;
  const std::int64_t begin = transfer.index * cutter.step(),
                     count = cutter.block(transfer.index, rank_).count;
  for (std::int64_t at = begin / source.step; at * source.step < begin + count; ++at) {
    const std::uint64_t number = source.first + static_cast<std::uint64_t>(at);
    wait_for(board_.post(rank_, number % board_.layout().slots).done, static_cast<std::uint32_t>(number),
             transfer.down);
  }
}

void HostStaged::reduce_and_gather(const Operation& operation, Stream stream) {
  const std::int64_t even = aligned((operation.count + size_ - 1) / size_);
  blocks_.clear();
  for (int rank = 0; rank < size_; ++rank)
    blocks_.push_back(std::clamp<std::int64_t>(operation.count - rank * even, 0, even));
  Operation scatter = operation, gather = operation;
  scatter.kind = OpKind::kReduceScatter;
  gather.kind = OpKind::kAllGather;
  scatter.count = gather.count = blocks_[static_cast<std::size_t>(rank_)];
  scatter.input_counts = gather.output_counts = blocks_;
  scatter.output = output_at(operation, block_offset(blocks_, even, rank_));
  gather.input = scatter.output;
  const PieceCutter scattered = cut(scatter);
  const auto pieces = static_cast<std::size_t>(scattered.pieces());
  if (two_steps_pay(scatter, pieces)) {
    collective(scatter, stream);
    return collective(gather, stream);
  }
  // The copies down of the second follow the first's at once, each when its part is reduced.
  Lanes lanes = fork(scatter, pieces, stream);
  SideStreams::Join join(sides_, stream, lanes.streams);
  const Source source{pieces_.load() + 1, scattered.step()};
  enqueue_pieces(scatter, scattered, lanes);
  lanes.ups = kLanes;
  enqueue_pieces(gather, cut(gather), lanes, source);
  join.now();
}

Range HostStaged::share(const PieceTransfer& transfer, int rank) const {
  const std::int64_t count = transfer.cutter.vector(transfer.index).count;
  const auto bound = [&](int i) {
    const std::int64_t even = (count * i + size_ - 1) / size_;
    return i == size_ ? count : std::min(count, aligned(even));
  };
  return {bound(rank), bound(rank + 1) - bound(rank)};
}

std::byte* HostStaged::result_of(const PieceTransfer& transfer, int rank) const {
  return board_.data(rank, transfer.slot) + bytes_of(transfer.operation, share(transfer, rank).begin);
}

Range HostStaged::own_part(const PieceTransfer& transfer) const {
  if (!scatters(transfer.operation.kind)) return share(transfer, rank_);
  return {rank_ * transfer.cutter.step(), transfer.cutter.block(transfer.index, rank_).count};
}

void HostStaged::post(const PieceTransfer& transfer) {
  const Operation& operation = transfer.operation;
  Board::Post& mine = board_.post(rank_, transfer.slot);
  std::byte* data = board_.data(rank_, transfer.slot);
  const auto former = transfer.number - static_cast<std::uint32_t>(board_.layout().slots);
  // This rank's own reads too: what it posts tells the others that they may write what it has read.
  wait_for_all(&Board::Post::done, former, transfer.slot, transfer.down);
  if (transfer.down != transfer.up) wait_for(mine.done, former, transfer.down);
  const auto copy = [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    if (operation.reduces() && operation.op == ReduceOp::kPremulSum && count > 0) {
      DeviceReduction job;  // every rank has a factor of its own
      job.parts[0] = input_at(operation, from);
      job.number = 1;
      job.scaled = 0;
      job.factor = operation.factor;
      job.copy = data + bytes_of(operation, to);
      job.count = count;
      return device_->reduce(job, operation.dtype, operation.op, transfer.down);
    }
    device_->copy_to_host(data + bytes_of(operation, to), input_at(operation, from),
                          static_cast<std::size_t>(bytes_of(operation, count)), transfer.down);
  };
  const Range whole = transfer.cutter.vector(transfer.index);
  if (scatters(operation.kind)) {
    for (int rank = 0; rank < size_; ++rank) {
      const Range block = transfer.cutter.block(transfer.index, rank);
      if (rank != rank_) copy(block.begin, rank * transfer.cutter.step(), block.count);
    }
  } else if (has_blocks(operation.kind)) {
    copy(transfer.index * transfer.cutter.step(), 0, transfer.cutter.block(transfer.index, rank_).count);
  } else if (operation.reduces()) {  // everything but this rank's own share
    const Range own = share(transfer, rank_);
    const std::int64_t behind = own.begin + own.count;
    copy(whole.begin, 0, own.begin);
    copy(whole.begin + behind, behind, whole.count - behind);
  } else if (has_input(operation, rank_)) {
    copy(whole.begin, 0, whole.count);
  }
  device_->raise(mine.posted, transfer.number, transfer.down);
}

void HostStaged::fetch(const PieceTransfer& transfer) {
  const Range part = own_part(transfer);
  const std::int64_t bytes = bytes_of(transfer.operation, part.count);
  std::byte* to = transfer.scratch;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    device_->copy_to_device(to, board_.data(rank, transfer.slot) + bytes_of(transfer.operation, part.begin),
                            static_cast<std::size_t>(bytes), transfer.up);
    to += bytes_of(transfer.operation, aligned(part.count));
  }
}

void HostStaged::reduce(const PieceTransfer& transfer) {
  const Operation& operation = transfer.operation;
  wait_for_all(&Board::Post::posted, transfer.number, transfer.slot, transfer.up);
  if (transfer.scratch) fetch(transfer);
  const bool scattered = scatters(operation.kind);
  const Range part = own_part(transfer);
  const std::int64_t from = scattered ? transfer.cutter.block(transfer.index, rank_).begin
                                      : transfer.cutter.vector(transfer.index).begin + part.begin;
  DeviceReduction job;
  job.number = size_;
  job.count = part.count;
  job.scaled = rank_;
  job.factor = operation.factor;
  const std::byte* fetched = transfer.scratch;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) {
      job.parts[rank] = input_at(operation, from);
    } else if (transfer.scratch) {
      job.parts[rank] = fetched;
      fetched += bytes_of(operation, aligned(part.count));
    } else {
      job.parts[rank] = board_.data(rank, transfer.slot) + bytes_of(operation, part.begin);
    }
  }
  const bool keeps = has_output(operation, rank_);
  const bool posts = !scattered && (!keeps || !kOpKinds[operation.kind].output_at_root);
  if (keeps) job.output = output_at(operation, scattered ? transfer.index * transfer.cutter.step() : from);
  if (posts) job.copy = result_of(transfer, rank_);
  if (job.count > 0) device_->reduce(job, operation.dtype, operation.op, transfer.up);
  if (!scattered) device_->raise(board_.post(rank_, transfer.slot).reduced, transfer.number, transfer.up);
}

void HostStaged::collect(const PieceTransfer& transfer) {
  const Operation& operation = transfer.operation;
  const auto copy = [&](std::int64_t to, const std::byte* from, std::int64_t count) {
    device_->copy_to_device(output_at(operation, to), from,
                            static_cast<std::size_t>(bytes_of(operation, count)), transfer.up);
  };
  const Range whole = transfer.cutter.vector(transfer.index);
  if (scatters(operation.kind)) {
    // reduce() has left the result in its place.
  } else if (has_blocks(operation.kind)) {
    for (int rank = 0; rank < size_; ++rank) {
      const Range block = transfer.cutter.block(transfer.index, rank);
      const std::byte* own = input_at(operation, transfer.index * transfer.cutter.step());
      if (rank != rank_) {
        wait_for(board_.post(rank, transfer.slot).posted, transfer.number, transfer.up);
        copy(block.begin, board_.data(rank, transfer.slot), block.count);
      } else if (own != output_at(operation, block.begin)) {
        device_->copy_on_device(output_at(operation, block.begin), own,
                                static_cast<std::size_t>(bytes_of(operation, block.count)), transfer.up);
      }
    }
  } else if (operation.reduces() && has_output(operation, rank_)) {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      wait_for(board_.post(rank, transfer.slot).reduced, transfer.number, transfer.up);
      const Range theirs = share(transfer, rank);
      copy(whole.begin + theirs.begin, result_of(transfer, rank), theirs.count);
    }
  } else if (!operation.reduces() && !has_input(operation, rank_)) {
    wait_for(board_.post(operation.root, transfer.slot).posted, transfer.number, transfer.up);
    copy(whole.begin, board_.data(operation.root, transfer.slot), whole.count);
  }
  device_->raise(board_.post(rank_, transfer.slot).done, transfer.number, transfer.up);
}

}  // namespace altorch
