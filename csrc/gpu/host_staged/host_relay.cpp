// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/host_relay.h"

#include <algorithm>

#include "base/adaptive_wait.h"
#include "base/leak_intentionally.h"
#include "base/log.h"
#include "base/number.h"
#include "base/shape.h"
#include "gpu/poison_guard.h"
#include "rendezvous/store_allgather.h"
#include "runtime/fingerprint.h"

namespace altorch {
namespace {

constexpr std::chrono::seconds kRelayTimeout{10};
// Larger pieces move no faster, and overlap less.
constexpr std::size_t kLeastSlot = 64 << 10, kLargestSlot = 4 << 20;

// Ranks that got less pinned memory than others bind all.
std::size_t least(Communicator& group, std::size_t mine, const HostRelayOptions& options) {
  KeyValueStore& store = options.store ? *options.store : group.store();
  const auto texts = store_allgather(store, "host_relay/pinned", group.rank(), group.size(), options.timeout,
                                     "to carry CUDA tensors through host memory", std::to_string(mine));
  for (const std::string& text : texts)
    mine = std::min(mine, number_from<std::size_t>(text, "the size of its pinned memory"));
  return mine;
}

Operation piece_of(const BlockMessage& message, std::byte* slot) {
  Operation operation;
  operation.kind = message.kind;
  operation.root = message.peer;
  operation.tag = message.tag;
  operation.input = operation.output = slot;
  operation.count = static_cast<std::int64_t>(message.bytes);
  operation.timeout = message.timeout;
  return operation;
}

}  // namespace

std::size_t HostRelay::piece_bytes(std::size_t pinned_bytes, std::size_t slots) {
  return std::clamp(pinned_bytes / (2 * slots), kLeastSlot, kLargestSlot);
}

HostRelay::Pool HostRelay::make_pool(Device& device, const HostRelayOptions& options) {
  std::size_t slot = piece_bytes(options.pinned_bytes, options.slots);
  for (;; slot /= 2) {
    try {
      const std::size_t bytes = Ring::bytes(slot, options.slots);
      PinnedMemory down = device.pin(bytes + sizeof(Flag));
      return {slot, std::move(down), device.pin(bytes)};
    } catch (const Error& error) {
      if (slot / 2 < kLeastSlot) throw;
      log(LogLevel::kWarning, std::string(error.what()) + "; trying half of it: large messages take longer");
    }
  }
}

HostRelay::HostRelay(std::unique_ptr<Device> device, std::shared_ptr<Communicator> carrier,
                     const HostRelayOptions& options)
    : device_(std::move(device)),
      carrier_(std::move(carrier)),
      pool_(make_pool(*device_, options)),
      piece_bytes_(least(*carrier_, pool_.slot_bytes, options)),
      marks_(options.marks),
      down_(pool_.down, pool_.slot_bytes, options.slots),
      up_(pool_.up, pool_.slot_bytes, options.slots),
      sides_(*device_, 2) {
  outcome_->aborted = {pool_.down, pool_.down.get() + Ring::bytes(pool_.slot_bytes, options.slots)};
  outcome_->on_failure = options.on_failure;
  if (marks_) device_->prepare_poison();
}

// No stream waits for what is sent: peers may still be about to take it.
HostRelay::~HostRelay() {
  const auto deadline = std::chrono::steady_clock::now() + kRelayTimeout;
  AdaptiveWait wait;
  while (outcome_->pending.load() > 0 && !failure() && std::chrono::steady_clock::now() < deadline)
    wait.pause();
  carrier_->close("the group was destroyed");
}

std::optional<Error> HostRelay::failure() {
  const std::lock_guard lock(outcome_->mutex);
  return outcome_->failure;
}

// The tasks fail, and thereby raise the flags that streams wait for.
void HostRelay::abort(const std::string& why) { carrier_->close(why); }

void HostRelay::enqueue(std::span<const Operation> operations, Stream stream) {
  if (auto error = failure()) throw *error;
  std::vector<BlockMessage> messages;
  unmarked_.clear();
  for (const Operation& operation : operations) {
    if (!is_vector_collective(operation.kind)) {
      add_messages(operation, carrier_->rank(), carrier_->size(), *device_, stream, messages);
    } else if (!collective(operation, stream)) {
      unmarked_.push_back(&operation);
    }
  }
  copy_own_messages(messages, carrier_->rank(), *device_, stream);
  if (!messages.empty() && !exchange(messages, stream)) {
    for (const Operation& operation : operations)
      if (!is_vector_collective(operation.kind)) unmarked_.push_back(&operation);
  }
  if (!marks_) return;
  const auto& aborted = reinterpret_cast<const Flag*>(outcome_->aborted.get())->count;
  for (const Operation* operation : unmarked_)
    poison_if(&aborted, *operation, carrier_->rank(), carrier_->size(), *device_, stream);
}

std::shared_ptr<Task> HostRelay::task_of(const Operation& operation, const Gate& gate, Flag& flag,
                                         std::uint32_t round, const PinnedMemory& memory, Handover results) {
  auto task = std::make_shared<Task>();
  task->operation = operation;
  task->input_counts.assign(operation.input_counts.begin(), operation.input_counts.end());
  task->output_counts.assign(operation.output_counts.begin(), operation.output_counts.end());
  task->operation.input_counts = task->input_counts;
  task->operation.output_counts = task->output_counts;
  task->gate = gate;
  outcome_->pending.fetch_add(1);
  task->on_done = [outcome = outcome_, &flag, round, memory, results = std::move(results)](Task& done) {
    if (!done.error) {
      results.succeed();
    } else {
      if (outcome->on_failure) outcome->on_failure(done.error->what());
      results.abort();
      const std::lock_guard lock(outcome->mutex);
      if (!outcome->failure) outcome->failure = done.error;
      reinterpret_cast<Flag*>(outcome->aborted.get())->raise(1);
    }
    // A transport may still read or write this memory, so it must not be reused.
    if (!done.buffers_free) leak_intentionally(std::make_unique<PinnedMemory>(memory));
    flag.raise(round);
    outcome->pending.fetch_sub(1);
  };
  return task;
}

void HostRelay::wait_for(const Gate& gate, Stream stream) {
  if (!gate.open()) device_->wait_for_flag(*gate.flag, gate.value, stream);
}

// Of blocks the slot holds what goes out and what comes in; a vector has one place for both.
std::int64_t HostRelay::step_of(const Operation& operation, int size, std::size_t piece_bytes) {
  return PieceCutter::step_for(piece_bytes, operation.dtype, has_blocks(operation.kind) ? size + 1 : 1);
}

bool HostRelay::collective(const Operation& operation, Stream stream) {
  const int size = carrier_->size();
  const PieceCutter cutter(operation, carrier_->rank(), size, step_of(operation, size, piece_bytes_));
  const std::uint64_t whole = append_call(operation.history, fingerprint(operation));
  const auto sides = sides_.fork(stream, cutter.pieces() > 1 ? 2 : 0);
  SideStreams::Join join(sides_, stream, sides);
  const Stream down = sides[0], up = sides[1];
  bool hands_over = cutter.pieces() <= 1;
  for (std::int64_t index = 0; index < cutter.pieces(); ++index) {
    const Slot slot = up_.take();
    cutter.cut(index, slot.data, piece_);
    const bool fills = !piece_.inputs.empty(), empties = !piece_.outputs.empty();
    if (!piece_.counts.empty()) {
      const bool gathers = operation.kind == OpKind::kAllGather;
      (gathers ? piece_.operation.output_counts : piece_.operation.input_counts) = piece_.counts;
    }
    hands_over =
        hands_over && Handover::fits(piece_.used(slot.data), piece_.result_bytes(), pool_.slot_bytes);
    Handover results;
    if (hands_over)
      results = Handover(piece_.outputs, slot.data + piece_.used(slot.data), poison_of(operation.dtype),
                         slot.former());
    piece_.operation.sequence = carrier_->next_sequence();
    // Pieces of other operations may look alike.
    piece_.operation.history = whole;
    // Submitted first: should the group be closed, nothing was enqueued that would wait for it.
    carrier_->submit(task_of(piece_.operation, fills ? Gate{slot.filled, slot.round} : slot.former(),
                             empties ? *slot.carried : *slot.free, slot.round, up_.memory(),
                             std::move(results)));
    if (fills) {
      wait_for(slot.former(), down);
      for (const PieceCopy& copy : piece_.inputs)
        device_->copy_to_host(copy.host, copy.device, copy.bytes, down);
      device_->raise(*slot.filled, slot.round, down);
    }
    if (empties) {
      device_->wait_for_flag(*slot.carried, slot.round, up);
      for (const PieceCopy& copy : piece_.outputs)
        device_->copy_to_device(copy.device, copy.host, copy.bytes, up);
      device_->raise(*slot.free, slot.round, up);
    }
  }
  join.now();
  return hands_over;
}

bool HostRelay::exchange(std::vector<BlockMessage>& messages, Stream stream) {
  order_messages(messages, carrier_->rank(), carrier_->size());
  const auto is_long = [&](const BlockMessage& message) { return message.bytes > piece_bytes_; };
  // On one stream what is sent must not wait for what is received.
  const bool overlaps = std::any_of(messages.begin(), messages.end(), is_long) ||
                        !all_sent_at_once(messages, piece_bytes_, down_.slots());
  if (!overlaps) {
    std::stable_partition(messages.begin(), messages.end(),
                          [](const BlockMessage& message) { return message.kind == OpKind::kSend; });
  }
  std::size_t taken = 0;
  for (const BlockMessage& message : messages)
    if (message.kind == OpKind::kReceive) taken += message.bytes;
  const bool hands_over = Handover::fits(taken, taken, piece_bytes_);  // each of them then
  const auto sides = sides_.fork(stream, overlaps ? 2 : 0);
  SideStreams::Join join(sides_, stream, sides);
  for_each_piece(messages, piece_bytes_, [&](const BlockMessage& part) {
    part.kind == OpKind::kSend ? send(part, sides[0]) : receive(part, hands_over, sides[1]);
  });
  join.now();
  return hands_over;
}

void HostRelay::send(const BlockMessage& part, Stream stream) {
  const Slot slot = down_.take();
  carrier_->post(
      task_of(piece_of(part, slot.data), {slot.filled, slot.round}, *slot.free, slot.round, down_.memory()));
  wait_for(slot.former(), stream);
  device_->copy_to_host(slot.data, part.data, part.bytes, stream);
  device_->raise(*slot.filled, slot.round, stream);
}

void HostRelay::receive(const BlockMessage& part, bool hands_over, Stream stream) {
  const Slot slot = up_.take();
  PieceCopy result{part.data, slot.data, part.bytes};
  Handover results;
  if (hands_over) results = Handover({&result, 1}, slot.data + part.bytes, part.poison, slot.former());
  carrier_->post(task_of(piece_of(part, slot.data), slot.former(), *slot.carried, slot.round, up_.memory(),
                         std::move(results)));
  device_->wait_for_flag(*slot.carried, slot.round, stream);
  device_->copy_to_device(result.device, result.host, result.bytes, stream);
  device_->raise(*slot.free, slot.round, stream);
}

}  // namespace altorch
