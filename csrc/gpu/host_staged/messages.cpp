// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/messages.h"

#include <algorithm>

#include "base/error.h"
#include "base/shape.h"
#include "transports/channel.h"

namespace altorch {

std::optional<std::string> host_staged_unsupported_reason(const Operation& operation) {
  if (operation.kind == OpKind::kReceive && operation.root == kAnySource)
    return "CUDA tensors are received from a named rank only; give recv a src";
  return std::nullopt;
}

std::optional<std::string> kernel_route_unsupported_reason(const Operation& operation) {
  if (is_scan(operation.kind)) return "its kernels have no scan";
  return host_staged_unsupported_reason(operation);
}

void add_messages(const Operation& operation, int rank, int size, Device& device, Stream stream,
                  std::vector<BlockMessage>& messages) {
  if (operation.is_message()) return add_messages(operation, rank, size, messages);
  const auto first = static_cast<std::ptrdiff_t>(messages.size());
  add_messages(operation, rank, size, messages);
  const auto own = std::find_if(messages.begin() + first, messages.end(),
                                [&](const BlockMessage& message) { return message.peer == rank; });
  if (own == messages.end()) return;
  device.copy_on_device((own + 1)->data, own->data, own->bytes, stream);
  messages.erase(own, own + 2);
}

void add_messages(const Operation& operation, int rank, int size, std::vector<BlockMessage>& messages) {
  const auto element = static_cast<std::int64_t>(size_of(operation.dtype));
  const auto add = [&](OpKind kind, int peer, const void* data, std::int64_t offset, std::int64_t count) {
    auto* block = static_cast<std::byte*>(const_cast<void*>(data)) + offset * element;
    messages.push_back({kind, peer, operation.tag, block, static_cast<std::size_t>(count * element),
                        operation.timeout, poison_of(operation.dtype)});
  };
  const OpKind kind = operation.kind;
  if (operation.is_message()) {
    const void* data = kind == OpKind::kSend ? operation.input : operation.output;
    return add(kind, operation.root, data, 0, operation.count);
  }
  if (all_know_sizes(kind)) return;  // a barrier waits on the host
  for (int peer = 0; peer < size; ++peer) {
    auto sent = part_for(operation, rank, peer), taken = part_from(operation, rank, peer);
    if (exchanges(kind) && std::max(sent->count, taken->count) * element <= operation.paired_bytes) continue;
    if (peer == rank && sent && taken) sent->count = taken->count = std::min(sent->count, taken->count);
    if (sent) add(OpKind::kSend, peer, operation.input, sent->begin, sent->count);
    if (taken) add(OpKind::kReceive, peer, operation.output, taken->begin, taken->count);
  }
}

void check_own_messages(std::span<const Operation> operations, int rank) {
  std::vector<std::size_t> sent, received;
  for (const Operation& operation : operations) {
    if (!operation.is_message() || operation.root != rank) continue;
    (operation.kind == OpKind::kSend ? sent : received)
        .push_back(static_cast<std::size_t>(operation.count) * size_of(operation.dtype));
  }
  if (sent == received) return;
  throw Error(ErrorKind::kInvalidArgument,
              "a rank sends itself what it does not receive in the same batch, or the other way round; give "
              "batch_isend_irecv both, of the same size, or copy the tensor");
}

void copy_own_messages(std::vector<BlockMessage>& messages, int rank, Device& device, Stream stream) {
  std::vector<BlockMessage> sent, received;
  std::erase_if(messages, [&](const BlockMessage& message) {
    if (message.peer != rank) return false;
    (message.kind == OpKind::kSend ? sent : received).push_back(message);
    return true;
  });
  for (std::size_t i = 0; i < sent.size(); ++i)
    device.copy_on_device(received[i].data, sent[i].data, sent[i].bytes, stream);
}

void order_messages(std::vector<BlockMessage>& messages, int rank, int size) {
  const auto distance = [&](const BlockMessage& message) {
    const int way = message.kind == OpKind::kSend ? message.peer - rank : rank - message.peer;
    return (way + size) % size;
  };
  std::stable_sort(messages.begin(), messages.end(),
                   [&](const BlockMessage& a, const BlockMessage& b) { return distance(a) < distance(b); });
}

bool all_sent_at_once(const std::vector<BlockMessage>& messages, std::size_t piece, std::size_t slots) {
  std::size_t sent = 0;
  for (const BlockMessage& message : messages)
    if (message.kind == OpKind::kSend) sent += pieces_of(message.bytes, piece);
  return sent <= slots;
}

}  // namespace altorch
