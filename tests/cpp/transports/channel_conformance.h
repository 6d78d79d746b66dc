// SPDX-License-Identifier: BSD-3-Clause
// What every Channel does, whatever carries it: channel_conforms() by every rank at once.
#pragma once

#include <cstdint>
#include <vector>

#include "transports/conformance.h"

namespace altorch::conformance {

inline void messages_arrive(Channel& channel, std::size_t largest = 5'000'000) {
  const int rank = channel.rank(), size = channel.size();
  // Every size to every rank, two tags out of order.
  for (std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'000}, largest}) {
    std::vector<std::vector<unsigned char>> incoming(static_cast<std::size_t>(size) * 2);
    std::vector<unsigned char> outgoing(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      outgoing[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(rank));
    std::vector<Request> requests(static_cast<std::size_t>(size) * 4);
    std::size_t next = 0;
    for (int peer = 0; peer < size; ++peer) {
      for (int tag = 0; tag < 2; ++tag) {
        auto& buffer = incoming[static_cast<std::size_t>(peer * 2 + tag)];
        buffer.assign(bytes, 0);
        channel.receive(buffer.data(), bytes, peer, tag, requests[next++]);
      }
    }
    for (int peer = 0; peer < size; ++peer) {
      for (int tag = 1; tag >= 0; --tag) channel.send(outgoing.data(), bytes, peer, tag, requests[next++]);
    }
    expect_done(channel, requests, "messages");
    for (int peer = 0; peer < size; ++peer) {
      for (std::size_t i = 0; i < bytes; ++i) {
        if (incoming[static_cast<std::size_t>(peer * 2)][i] !=
            static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(peer)))
          throw std::runtime_error("byte " + std::to_string(i) + " of " + std::to_string(bytes) + " from " +
                                   std::to_string(peer) + " is wrong");
      }
    }
  }
  // From any source.
  if (rank == 0) {
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (int i = 1; i < size; ++i) {
      std::int64_t word = -1;
      Request request;
      channel.receive(&word, sizeof(word), kAnySource, 5, request);
      expect_done(channel, {&request, 1}, "receive from any source");
      expect(request.peer == word, "wrong source");
      expect(!seen[static_cast<std::size_t>(word)], "the same source twice");
      seen[static_cast<std::size_t>(word)] = true;
    }
  } else {
    std::int64_t word = rank;
    Request request;
    channel.send(&word, sizeof(word), 0, 5, request);
    expect_done(channel, {&request, 1}, "send");
  }
}

inline void sizes_are_compared(Channel& channel) {
  if (channel.size() < 2 || channel.rank() > 1) return;
  const int peer = 1 - channel.rank();
  auto send = [&](std::size_t bytes, int tag) {
    std::vector<char> data(bytes, 'x');
    Request request;
    channel.send(data.data(), bytes, peer, tag, request);
    expect_done(channel, {&request, 1}, "send");
  };
  auto receive = [&](std::size_t bytes, int tag, bool exact) {
    std::vector<char> data(bytes);
    Request request;
    request.exact = exact;
    channel.receive(data.data(), bytes, peer, tag, request);
    return finish(channel, {&request, 1});
  };
  if (channel.rank() == 0) {
    send(8, 1);
    send(8, 2);
    send(16, 3);
    // No rank sends with this tag: the receive must come back.
    char byte;
    Request request;
    channel.receive(&byte, 1, peer, 9, request);
    std::optional<Error> error;
    expect(channel.test({&request, 1}, error) == State::kPending, "a receive without a message is done");
    expect(channel.cancel({&request, 1}), "a receive cannot be withdrawn");
    expect(channel.test({&request, 1}, error) == State::kDone, "a withdrawn request is in flight");
  } else {
    auto shorter = receive(16, 1, true);
    expect(shorter && shorter->kind() == ErrorKind::kMismatch, "too short a message passes");
    expect(!receive(16, 2, false), "a short message is refused where it is allowed");
    auto longer = receive(8, 3, true);
    expect(longer && longer->kind() == ErrorKind::kMismatch, "too long a message passes");
  }
}

// `largest`: bytes of the largest message.
inline void channel_conforms(Channel& channel, std::size_t largest = 5'000'000) {
  messages_arrive(channel, largest);
  sizes_are_compared(channel);
}

// Of channels that carry the type of what is sent; by ranks 0 and 1.
inline void types_are_told_apart(Channel& channel) {
  const int peer = 1 - channel.rank();
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{5'000'000}}) {
    std::vector<char> data(bytes);
    const auto pass = [&](ElementType sent, ElementType awaited) {
      Request request;
      const bool sends = channel.rank() == 0;
      request.type = sends ? sent : awaited;
      if (sends) {
        channel.send(data.data(), bytes, peer, 1, request);
      } else {
        channel.receive(data.data(), bytes, peer, 1, request);
      }
      return finish(channel, {&request, 1});
    };
    constexpr ElementType kNone = 0, kFloats = element_type(DType::kFloat32),
                          kInts = element_type(DType::kInt32);
    expect(!pass(kFloats, kFloats), "a message of one type is refused");
    expect(!pass(kNone, kFloats) && !pass(kFloats, kNone),
           "a message is refused where one end names no type");
    const auto wrong = pass(kFloats, kInts);
    if (channel.rank() == 0) continue;  // which may have been done before
    expect(wrong && wrong->kind() == ErrorKind::kMismatch, "a message of another type passes");
    const std::string text = wrong->what();
    expect(text.find("float32") != text.npos && text.find("int32") != text.npos, "the types are not named");
  }
}

}  // namespace altorch::conformance
