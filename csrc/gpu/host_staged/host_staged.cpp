// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/host_staged.h"

#include <algorithm>
#include <string>

#include "base/dtype.h"
#include "base/shape.h"
#include "gpu/host_staged/operands.h"
#include "gpu/poison_guard.h"

namespace altorch {
namespace {

LlExchanges::Slots ll_slots_on(const Board& board, int rank) {
  const BoardLayout& layout = board.layout();
  LlExchanges::Slots slots;
  slots.for_all = true;
  slots.shape = layout.ll_shape();
  slots.pair_shape = layout.pair_shape();
  slots.send_slots = {board.ll_place(rank)};
  for (int peer = 0; peer < layout.ranks; ++peer) {
    slots.receive_slots.push_back(board.ll_place(peer));
    slots.pair_send_slots.push_back(peer == rank ? nullptr : board.pair_place(rank, peer));
    slots.pair_receive_slots.push_back(peer == rank ? nullptr : board.pair_place(peer, rank));
  }
  return slots;
}

}  // namespace

HostStaged::HostStaged(std::unique_ptr<Device> device, Board board, DeviceMemory scratch, int rank,
                       bool own_gpus, std::uint64_t counted, Rules rules)
    : device_(std::move(device)),
      board_(std::move(board)),
      scratch_(std::move(scratch)),
      rank_(rank),
      size_(board_.layout().ranks),
      rules_(std::move(rules)),
      staged_{board_.layout(), own_gpus},
      sides_(*device_, board_.layout().slots + kLanes),
      pieces_(counted),
      sent_(static_cast<std::size_t>(size_), counted),
      taken_(static_cast<std::size_t>(size_), counted),
      messages_(counted) {
  // A slot's flags are raised in order because all its pieces come up on one stream where no rank
  // waits.
  const std::size_t slots = board_.layout().slots;
  if (slots % kLanes != 0 || slots + kLanes > SideStreams::kMost)
    throw Error(ErrorKind::kInvalidArgument, "a board has " + std::to_string(slots) + " slots");
  if (own_gpus)
    ll_.emplace(*device_, ll_slots_on(board_, rank_), rank_, size_, board_.layout().pair_bytes(),
                board_.abort_flag());
  device_->prepare_poison();
}

std::optional<Error> HostStaged::failure() {
  if (auto why = board_.aborted()) return Error(ErrorKind::kTransport, *why);
  return std::nullopt;
}

// All ranks share the board, so each rank counts an equal part of it.
HostStaged::Held HostStaged::holds() {
  const BoardLayout& layout = board_.layout();
  return {.on_gpu = scratch_bytes(layout),
          .on_host = layout.bytes() / static_cast<std::size_t>(layout.ranks)};
}

void HostStaged::abort(const std::string& why) {
  board_.abort(why, static_cast<std::uint32_t>(pieces_.load()), static_cast<std::uint32_t>(messages_.load()));
}

void HostStaged::enqueue(std::span<const Operation> operations, Stream stream) {
  if (auto error = failure()) throw *error;
  std::vector<BlockMessage> messages;
  std::vector<const Operation*> unmarked;  // what goes in one kernel marks its results itself
  for (const Operation& operation : operations) {
    const auto asked = rules_.gpu_protocol(operation, {.ranks = size_}, name());
    switch (protocol_of(staged_protocols(), operation, staged_, asked).id) {
      case StagedProtocolId::kLl:
        ll_->enqueue(operation, stream);
        break;
      case StagedProtocolId::kPieces:
        unmarked.push_back(&operation);
        collective(operation, stream);
        break;
      case StagedProtocolId::kPairs:
        if (const auto rest = ll_->enqueue_pairs(operation, stream)) {
          unmarked.push_back(&operation);
          add_messages(*rest, rank_, size_, *device_, stream, messages);
        }
        break;
      case StagedProtocolId::kMessages:
        unmarked.push_back(&operation);
        add_messages(operation, rank_, size_, *device_, stream, messages);
        break;
    }
  }
  copy_own_messages(messages, rank_, *device_, stream);
  if (!messages.empty()) exchange(messages, stream);
  for (const Operation* operation : unmarked)
    poison_if(board_.abort_flag(), *operation, rank_, size_, *device_, stream);
}

void HostStaged::wait_for(const Flag& flag, std::uint32_t value, Stream stream) {
  if (!flag.reached(value)) device_->wait_for_flag(flag, value, stream);
}

void HostStaged::exchange(std::vector<BlockMessage>& messages, Stream stream) {
  order_messages(messages, rank_, size_);
  // A single message in one direction needs no second stream; two might wait for each other.
  const auto sides = sides_.fork(stream, messages.size() > 1 ? 2 : 0);
  SideStreams::Join join(sides_, stream, sides);
  for_each_piece(messages, board_.layout().message_bytes, [&](const BlockMessage& part) {
    part.kind == OpKind::kSend ? send(part, sides[0]) : receive(part, sides[1]);
  });
  join.now();
}

void HostStaged::send(const BlockMessage& message, Stream stream) {
  const std::uint64_t number = ++sent_[static_cast<std::size_t>(message.peer)];
  messages_.store(std::max(messages_.load(), number));
  const auto slots = static_cast<std::uint32_t>(board_.layout().message_slots);
  const auto round = static_cast<std::uint32_t>(number);
  Board::MessageSlot& place = board_.message_slot(rank_, message.peer, number % slots);
  wait_for(place.emptied, round - slots, stream);
  device_->copy_to_host(board_.message_data(rank_, message.peer, number % slots), message.data, message.bytes,
                        stream);
  device_->raise(place.filled, round, stream);
}

void HostStaged::receive(const BlockMessage& message, Stream stream) {
  const std::uint64_t number = ++taken_[static_cast<std::size_t>(message.peer)];
  messages_.store(std::max(messages_.load(), number));
  const auto slots = static_cast<std::uint32_t>(board_.layout().message_slots);
  const auto round = static_cast<std::uint32_t>(number);
  Board::MessageSlot& place = board_.message_slot(message.peer, rank_, number % slots);
  wait_for(place.filled, round, stream);
  device_->copy_to_device(message.data, board_.message_data(message.peer, rank_, number % slots),
                          message.bytes, stream);
  device_->raise(place.emptied, round, stream);
}

}  // namespace altorch
