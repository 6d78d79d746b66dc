// SPDX-License-Identifier: BSD-3-Clause
// The messages of which all_to_all, gather, scatter, send and recv consist: blocks from one rank to
// another.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/block_counts.h"
#include "base/operation.h"
#include "device/device.h"

namespace altorch {

// Pieces of a message, none larger than `piece`. An empty message is a piece too.
constexpr std::size_t pieces_of(std::size_t bytes, std::size_t piece) {
  return bytes == 0 ? 1 : (bytes + piece - 1) / piece;
}

// Between device memory here and device memory there.
struct BlockMessage {
  OpKind kind;  // kSend or kReceive
  int peer;
  std::int64_t tag;
  std::byte* data;
  std::size_t bytes;
  std::chrono::milliseconds timeout;
  std::uint64_t poison;  // poison_of() its type
};

// Why an operation cannot go through the host, as a clause with a remedy, or nothing.
std::optional<std::string> host_staged_unsupported_reason(const Operation& operation);
// Why a route that moves data with GPU kernels (peer, host_staged) cannot carry it: as above, or it
// is a scan.
std::optional<std::string> kernel_route_unsupported_reason(const Operation& operation);

// Calls `each(peer, input, sent, output, taken)` with what an all_to_all moves between this rank
// and every rank, itself included. Sizes are in bytes.
template <typename Each>
void for_each_pair(const Operation& operation, int size, Each&& each) {
  const auto element = static_cast<std::int64_t>(size_of(operation.dtype));
  const auto* input = static_cast<const std::byte*>(operation.input);
  auto* output = static_cast<std::byte*>(operation.output);
  for (int peer = 0; peer < size; ++peer) {
    const std::int64_t sent = element * block_count(operation.input_counts, operation.count, peer);
    const std::int64_t taken = element * block_count(operation.output_counts, operation.count, peer);
    each(peer, input, sent, output, taken);
    input += sent;
    output += taken;
  }
}

// Adds this rank's messages of an operation that is no vector collective. A collective's block for
// this rank itself is copied on `stream` at once.
void add_messages(const Operation& operation, int rank, int size, Device& device, Stream stream,
                  std::vector<BlockMessage>& messages);
// The same, with messages of this rank to itself in place of a copy.
void add_messages(const Operation& operation, int rank, int size, std::vector<BlockMessage>& messages);

// Checks that this rank's messages to itself match: the first sent is the first received. Throws
// Error(kInvalidArgument) if one is left over, or if sizes differ.
void check_own_messages(std::span<const Operation> operations, int rank);
// Copies this rank's messages to itself on `stream`, and removes them from `messages`.
void copy_own_messages(std::vector<BlockMessage>& messages, int rank, Device& device, Stream stream);

// Orders the messages so that ranks with few slots never wait for each other in a cycle. Each rank
// sorts by the distance from sender to receiver. So of all messages that are left, those with the
// least distance can always go on. Messages between the same two ranks keep their order.
void order_messages(std::vector<BlockMessage>& messages, int rank, int size);

// Calls `each` with every piece of every message, a message of its own, in order.
template <typename Each>
void for_each_piece(const std::vector<BlockMessage>& messages, std::size_t piece, Each&& each) {
  for (const BlockMessage& message : messages) {
    for (std::size_t i = 0; i < pieces_of(message.bytes, piece); ++i) {
      BlockMessage part = message;
      part.data += i * piece;
      part.bytes = std::min(piece, message.bytes - i * piece);
      each(part);
    }
  }
}

// Whether all that this rank sends fits into `slots` pieces, so that sending waits for no peer.
bool all_sent_at_once(const std::vector<BlockMessage>& messages, std::size_t piece, std::size_t slots);

}  // namespace altorch
