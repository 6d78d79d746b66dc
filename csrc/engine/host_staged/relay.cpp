#include "engine/host_staged/relay.h"

#include <algorithm>

#include "common/adaptive_wait.h"
#include "common/block_counts.h"
#include "common/log.h"
#include "common/meeting.h"

namespace altorch {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kLeastSlot = 64 << 10;

bool is_collective_by_pieces(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
      return true;
    default:
      return false;
  }
}

// Ranks that got less pinned memory than others bind all.
std::size_t least(Communicator& group, std::size_t mine, std::chrono::milliseconds timeout) {
  const auto words = meet(group.store(), "pinned", group.rank(), group.size(), timeout,
                          "to carry CUDA tensors through host memory", std::to_string(mine));
  for (const std::string& word : words) mine = std::min<std::size_t>(mine, std::stoull(word));
  return mine;
}

std::size_t piece_count(std::size_t bytes, std::size_t piece) {
  return std::max<std::size_t>(1, (bytes + piece - 1) / piece);  // an empty message is one too
}

}  // namespace

Relay::Pool Relay::make_pool(Device& device, const RelayOptions& options) {
  std::size_t slot = std::max(options.pinned_bytes / (2 * options.slots), kLeastSlot);
  for (;; slot /= 2) {
    try {
      const std::size_t bytes = Ring::bytes(slot, options.slots);
      PinnedMemory down = device.pin(bytes);
      return {slot, std::move(down), device.pin(bytes)};
    } catch (const Error& error) {
      if (slot / 2 < kLeastSlot) throw;
      log(LogLevel::kWarning, std::string(error.what()) + "; trying half of it: large messages take longer");
    }
  }
}

Relay::Relay(std::unique_ptr<Device> device, std::shared_ptr<Communicator> carrier,
             const RelayOptions& options)
    : device_(std::move(device)),
      carrier_(std::move(carrier)),
      pool_(make_pool(*device_, options)),
      piece_bytes_(least(*carrier_, pool_.slot_bytes, options.timeout)),
      down_(pool_.down, pool_.slot_bytes, options.slots),
      up_(pool_.up, pool_.slot_bytes, options.slots),
      down_stream_(device_->make_stream()),
      up_stream_(device_->make_stream()) {}

// No stream waits for what is sent: peers may still be about to take it.
Relay::~Relay() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  AdaptiveWait wait;
  while (outcome_->pending.load() > 0 && !failure() && std::chrono::steady_clock::now() < deadline)
    wait.pause();
  carrier_->close("the group was destroyed");
}

std::optional<std::string> Relay::obstacle_to(const Operation& operation) {
  if (operation.kind == OpKind::kReceive && operation.root == kAnySource)
    return "CUDA tensors are received from a named rank only; give recv a src";
  return std::nullopt;
}

std::optional<Error> Relay::failure() {
  const std::lock_guard lock(outcome_->mutex);
  return outcome_->failure;
}

// The tasks fail, and thereby raise the flags that streams wait for.
void Relay::abort(const std::string& why) { carrier_->close(why); }

void Relay::enqueue(std::span<const Operation> operations, Stream stream) {
  if (auto error = failure()) throw *error;
  std::vector<Message> messages;
  for (const Operation& operation : operations) {
    if (is_collective_by_pieces(operation.kind)) {
      collective(operation, stream);
    } else {
      add_messages(operation, stream, messages);
    }
  }
  if (!messages.empty()) exchange(messages, stream);
}

std::shared_ptr<Task> Relay::task_of(const Operation& operation, const Gate& gate, Flag& flag,
                                     std::uint32_t round, const PinnedMemory& memory) {
  auto task = std::make_shared<Task>();
  task->operation = operation;
  task->input_counts.assign(operation.input_counts.begin(), operation.input_counts.end());
  task->output_counts.assign(operation.output_counts.begin(), operation.output_counts.end());
  task->operation.input_counts = task->input_counts;
  task->operation.output_counts = task->output_counts;
  task->gate = gate;
  outcome_->pending.fetch_add(1);
  task->on_done = [outcome = outcome_, &flag, round, memory](Task& done) {
    if (done.error) {
      const std::lock_guard lock(outcome->mutex);
      if (!outcome->failure) outcome->failure = done.error;
    }
    flag.raise(round);
    outcome->pending.fetch_sub(1);
  };
  return task;
}

void Relay::wait_for(const Gate& gate, Stream stream) {
  if (!gate.open()) device_->wait_for_flag(*gate.flag, gate.value, stream);
}

void Relay::fork(Stream stream) {
  device_->wait_for_stream(down_stream_, stream);
  device_->wait_for_stream(up_stream_, stream);
}

void Relay::join(Stream stream) {
  device_->wait_for_stream(stream, down_stream_);
  device_->wait_for_stream(stream, up_stream_);
}

void Relay::collective(const Operation& operation, Stream stream) {
  const PieceCutter cutter(operation, carrier_->rank(), carrier_->size(), piece_bytes_);
  const bool overlaps = cutter.pieces() > 1;
  const Stream down = overlaps ? down_stream_ : stream, up = overlaps ? up_stream_ : stream;
  if (overlaps) fork(stream);
  for (std::int64_t index = 0; index < cutter.pieces(); ++index) {
    const Slot slot = up_.take();
    cutter.cut(index, slot.data, piece_);
    const bool fills = !piece_.inputs.empty(), empties = !piece_.outputs.empty();
    if (!piece_.counts.empty()) {
      const bool gathers = operation.kind == OpKind::kAllGather;
      (gathers ? piece_.operation.output_counts : piece_.operation.input_counts) = piece_.counts;
    }
    piece_.operation.sequence = carrier_->next_sequence();
    // Submitted first: should the group be closed, nothing was enqueued that would wait for it.
    carrier_->submit(task_of(piece_.operation, fills ? Gate{slot.filled, slot.round} : slot.former(),
                             empties ? *slot.carried : *slot.free, slot.round, up_.memory()));
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
  if (overlaps) join(stream);
}

void Relay::add_messages(const Operation& operation, Stream stream, std::vector<Message>& messages) {
  const int rank = carrier_->rank(), size = carrier_->size();
  const auto element = static_cast<std::int64_t>(size_of(operation.dtype));
  const auto add = [&](OpKind kind, int peer, const void* data, std::int64_t offset, std::int64_t count) {
    messages.push_back({kind, peer, operation.tag,
                        static_cast<std::byte*>(const_cast<void*>(data)) + offset * element,
                        static_cast<std::size_t>(count * element), operation.timeout});
  };
  if (operation.is_message()) {
    const bool sends = operation.kind == OpKind::kSend;
    return add(operation.kind, operation.root, sends ? operation.input : operation.output, 0,
               operation.count);
  }
  if (operation.kind == OpKind::kBarrier) return;  // the caller's affair: it waits on the host
  const bool exchanges = operation.kind == OpKind::kAllToAll;
  const bool sends_all = exchanges || (operation.kind == OpKind::kScatter && rank == operation.root);
  const bool takes_all = exchanges || (operation.kind == OpKind::kGather && rank == operation.root);
  const auto block_of = [&](std::span<const std::int64_t> counts, int peer, bool all) {
    return std::pair(all ? block_offset(counts, operation.count, peer) : 0,
                     all ? block_count(counts, operation.count, peer) : operation.count);
  };
  for (int peer = 0; peer < size; ++peer) {
    const bool sends = exchanges || (operation.kind == OpKind::kScatter ? sends_all : peer == operation.root);
    const bool takes = exchanges || (operation.kind == OpKind::kGather ? takes_all : peer == operation.root);
    const auto [out_at, out_count] = block_of(operation.input_counts, peer, sends_all);
    const auto [in_at, in_count] = block_of(operation.output_counts, peer, takes_all);
    if (peer == rank) {
      if (!sends || !takes) continue;
      device_->copy_on_device(static_cast<std::byte*>(operation.output) + in_at * element,
                              static_cast<const std::byte*>(operation.input) + out_at * element,
                              static_cast<std::size_t>(std::min(out_count, in_count) * element), stream);
      continue;
    }
    if (sends) add(OpKind::kSend, peer, operation.input, out_at, out_count);
    if (takes) add(OpKind::kReceive, peer, operation.output, in_at, in_count);
  }
}

// Slots are few, so the order of the messages must not let ranks wait for each other in a circle: each rank
// goes by the distance from sender to receiver. Then the messages with the least distance of all that are
// left can always go on. Those between the same two ranks keep the order of the calls.
void Relay::exchange(std::vector<Message>& messages, Stream stream) {
  const int rank = carrier_->rank(), size = carrier_->size();
  const auto distance = [&](const Message& message) {
    const int way = message.kind == OpKind::kSend ? message.peer - rank : rank - message.peer;
    return (way + size) % size;
  };
  std::stable_sort(messages.begin(), messages.end(),
                   [&](const Message& a, const Message& b) { return distance(a) < distance(b); });
  // What is sent must not wait for what is received: with a slot for everything sent, one stream will do.
  std::size_t sent = 0;
  bool overlaps = false;
  for (const Message& message : messages) {
    if (message.kind == OpKind::kSend) sent += piece_count(message.bytes, piece_bytes_);
    overlaps |= message.bytes > piece_bytes_ || sent > down_.slots();
  }
  if (!overlaps) {
    std::stable_partition(messages.begin(), messages.end(),
                          [](const Message& message) { return message.kind == OpKind::kSend; });
  }
  const Stream down = overlaps ? down_stream_ : stream, up = overlaps ? up_stream_ : stream;
  if (overlaps) fork(stream);
  for (const Message& message : messages) {
    for (std::size_t i = 0; i < piece_count(message.bytes, piece_bytes_); ++i) {
      const std::size_t begin = i * piece_bytes_, bytes = std::min(piece_bytes_, message.bytes - begin);
      if (message.kind == OpKind::kSend) {
        send_piece(message, begin, bytes, down);
      } else {
        receive_piece(message, begin, bytes, up);
      }
    }
  }
  if (overlaps) join(stream);
}

namespace {

Operation piece_of_message(OpKind kind, int peer, std::int64_t tag, std::byte* data, std::size_t bytes,
                           std::chrono::milliseconds timeout) {
  Operation operation;
  operation.kind = kind;
  operation.root = peer;
  operation.tag = tag;
  operation.input = operation.output = data;
  operation.count = static_cast<std::int64_t>(bytes);
  operation.timeout = timeout;
  return operation;
}

}  // namespace

void Relay::send_piece(const Message& message, std::size_t begin, std::size_t bytes, Stream stream) {
  const Slot slot = down_.take();
  const Operation operation =
      piece_of_message(OpKind::kSend, message.peer, message.tag, slot.data, bytes, message.timeout);
  carrier_->post(task_of(operation, {slot.filled, slot.round}, *slot.free, slot.round, down_.memory()));
  wait_for(slot.former(), stream);
  device_->copy_to_host(slot.data, message.data + begin, bytes, stream);
  device_->raise(*slot.filled, slot.round, stream);
}

void Relay::receive_piece(const Message& message, std::size_t begin, std::size_t bytes, Stream stream) {
  const Slot slot = up_.take();
  const Operation operation =
      piece_of_message(OpKind::kReceive, message.peer, message.tag, slot.data, bytes, message.timeout);
  carrier_->post(task_of(operation, slot.former(), *slot.carried, slot.round, up_.memory()));
  device_->wait_for_flag(*slot.carried, slot.round, stream);
  device_->copy_to_device(message.data + begin, slot.data, bytes, stream);
  device_->raise(*slot.free, slot.round, stream);
}

}  // namespace altorch
