#include "engine/host_staged/host_staged.h"

#include <algorithm>
#include <string>

#include "common/dtype.h"
#include "engine/host_staged/operands.h"
#include "engine/poison_guard.h"

namespace altorch {
namespace {

// Never 0, and even after odd.
std::uint32_t next_exchange(std::uint32_t& last) { return last = last == 0xFFFFFFFFu ? 2 : last + 1; }

}  // namespace

HostStaged::HostStaged(std::unique_ptr<Device> device, Board board, DeviceMemory scratch, int rank,
                       bool own_gpus)
    : device_(std::move(device)),
      board_(std::move(board)),
      scratch_(std::move(scratch)),
      rank_(rank),
      size_(board_.layout().ranks),
      own_gpus_(own_gpus),
      sides_(*device_, board_.layout().slots + kLanes),
      paired_(static_cast<std::size_t>(size_), 0),
      sent_(static_cast<std::size_t>(size_), 0),
      taken_(static_cast<std::size_t>(size_), 0) {
  // A slot's flags are raised in order because all its pieces come up on one stream where no rank waits.
  const std::size_t slots = board_.layout().slots;
  if (slots % kLanes != 0 || slots + kLanes > SideStreams::kMost)
    throw Error(ErrorKind::kInvalidArgument, "a board has " + std::to_string(slots) + " slots");
  if (own_gpus_) device_->prepare_small_moves();
  device_->prepare_poison();
}

std::optional<Error> HostStaged::failure() {
  if (auto why = board_.aborted()) return Error(ErrorKind::kTransport, *why);
  return std::nullopt;
}

void HostStaged::abort(const std::string& why) {
  board_.abort(why, std::max(pieces_.load(), messages_.load()));
}

void HostStaged::enqueue(std::span<const Operation> operations, Stream stream) {
  if (auto error = failure()) throw *error;
  std::vector<BlockMessage> messages;
  std::vector<const Operation*> unmarked;  // what goes in one kernel marks its results itself
  for (const Operation& operation : operations) {
    if (!is_vector_collective(operation.kind)) {
      const auto rest = exchange_pairs(operation, stream);
      if (rest) unmarked.push_back(&operation);
      if (rest) add_messages(*rest, rank_, size_, *device_, stream, messages);
    } else if (own_gpus_ && is_small(operation, size_, board_.layout().small_bytes)) {
      small(operation, stream);
    } else {
      unmarked.push_back(&operation);
      collective(operation, stream);
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

bool HostStaged::is_small(const Operation& operation, int size, std::size_t small_bytes) {
  if (operation.uneven() || operation.count == 0) return false;
  const int blocks = operation.kind == OpKind::kReduceScatter ? size : 1;
  return blocks * bytes_of(operation, operation.count) <= static_cast<std::int64_t>(small_bytes);
}

void HostStaged::small(const Operation& operation, Stream stream) {
  const bool scatters = operation.kind == OpKind::kReduceScatter,
             gathers = operation.kind == OpKind::kAllGather;
  const bool broadcasts = operation.kind == OpKind::kBroadcast, at_root = rank_ == operation.root;
  // Moves are counted in bytes.
  const std::int64_t count = operation.reduces() ? operation.count : bytes_of(operation, operation.count);
  const std::int64_t vector = scatters ? size_ * count : count;
  next_exchange(exchanges_);
  SmallExchange job;
  for (int rank = 0; rank < size_; ++rank) job.areas[rank] = board_.small_area(rank, exchanges_);
  job.aborted = board_.abort_flag();
  job.input = input_at(operation, 0);
  job.output = operation.output;
  job.posted = broadcasts && !at_root ? 0 : vector;
  const bool has_result = broadcasts ? !at_root : operation.kind != OpKind::kReduce || at_root;
  job.wanted = has_result ? count : 0;
  job.skipped = scatters ? rank_ * count : 0;
  job.first = broadcasts ? operation.root : 0;
  job.behind = broadcasts ? operation.root + 1 : size_;
  job.rank = rank_;
  job.number = size_;
  job.exchange = exchanges_;
  job.scaled = operation.op == ReduceOp::kPremulSum && operation.reduces();
  job.factor = operation.factor;
  job.poison = poison_of(operation.dtype);
  if (gathers || broadcasts) {
    device_->move_small(job, stream);
  } else {
    device_->reduce_small(job, operation.dtype, operation.op, stream);
  }
}

std::optional<Operation> HostStaged::exchange_pairs(const Operation& operation, Stream stream) {
  const auto most = static_cast<std::int64_t>(pair_bytes());
  if (operation.kind != OpKind::kAllToAll || most == 0) return operation;
  bool left = false;
  PairExchange job;
  job.aborted = board_.abort_flag();
  job.poison = poison_of(operation.dtype);
  for_each_pair(operation, size_,
                [&](int peer, const void* input, std::int64_t sent, void* output, std::int64_t taken) {
                  const std::int64_t larger = std::max(sent, taken);
                  left |= larger > most;
                  if (larger == 0 || larger > most) return;
                  PairExchange::Pair& pair = job.pairs[job.number++];
                  pair.input = input;
                  pair.output = output;
                  pair.sent = static_cast<std::uint32_t>(sent);
                  pair.taken = static_cast<std::uint32_t>(taken);
                  if (peer == rank_) return;
                  pair.exchange = next_exchange(paired_[static_cast<std::size_t>(peer)]);
                  pair.posts = board_.pair_area(rank_, peer, pair.exchange);
                  pair.theirs = board_.pair_area(peer, rank_, pair.exchange);
                });
  if (job.number > 0) device_->exchange_pairs(job, stream);
  if (!left) return std::nullopt;
  Operation rest = operation;
  rest.paired_bytes = most;
  return rest;
}

void HostStaged::exchange(std::vector<BlockMessage>& messages, Stream stream) {
  order_messages(messages, rank_, size_);
  // A single message in one direction needs no second stream; two might wait for each other.
  const auto sides = sides_.fork(stream, messages.size() > 1 ? 2 : 0);
  for_each_piece(messages, board_.layout().message_bytes, [&](const BlockMessage& part) {
    part.kind == OpKind::kSend ? send(part, sides[0]) : receive(part, sides[1]);
  });
  sides_.join(stream, sides);
}

void HostStaged::send(const BlockMessage& message, Stream stream) {
  const std::uint32_t number = ++sent_[static_cast<std::size_t>(message.peer)];
  messages_.store(std::max(messages_.load(), number));
  const auto slots = static_cast<std::uint32_t>(board_.layout().message_slots);
  Board::MessageSlot& place = board_.message_slot(rank_, message.peer, number % slots);
  wait_for(place.emptied, number - slots, stream);
  device_->copy_to_host(board_.message_data(rank_, message.peer, number % slots), message.data, message.bytes,
                        stream);
  device_->raise(place.filled, number, stream);
}

void HostStaged::receive(const BlockMessage& message, Stream stream) {
  const std::uint32_t number = ++taken_[static_cast<std::size_t>(message.peer)];
  messages_.store(std::max(messages_.load(), number));
  const auto slots = static_cast<std::uint32_t>(board_.layout().message_slots);
  Board::MessageSlot& place = board_.message_slot(message.peer, rank_, number % slots);
  wait_for(place.filled, number, stream);
  device_->copy_to_device(message.data, board_.message_data(message.peer, rank_, number % slots),
                          message.bytes, stream);
  device_->raise(place.emptied, number, stream);
}

}  // namespace altorch
