// SPDX-License-Identifier: BSD-3-Clause
#include "transports/loopback/mailbox.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace altorch::loopback {
namespace {

std::optional<Error> move_data(const Message& message, const Receive& receive) {
  if (auto wrong = unfit(message.bytes, message.type, receive.bytes, receive.type, receive.exact,
                         "rank " + std::to_string(message.source)))
    return wrong;
  if (message.bytes > 0) {
    std::memcpy(receive.data, message.sender != 0 ? message.data : message.copy.data(), message.bytes);
  }
  return std::nullopt;
}

}  // namespace

void Mailbox::add(Message message) {
  for (const Message& earlier : messages_) {
    if (earlier.source == message.source && earlier.tag == message.tag) {
      message.visible_from = std::max(message.visible_from, earlier.visible_from);
    }
  }
  messages_.push_back(std::move(message));
}

std::optional<Delivery> Mailbox::deliver(std::uint64_t now) {
  for (auto receive = receives_.begin(); receive != receives_.end(); ++receive) {
    const auto message = std::find_if(messages_.begin(), messages_.end(), [&](const Message& m) {
      return m.visible_from <= now && m.tag == receive->tag &&
             (receive->source == kAnySource || receive->source == m.source);
    });
    if (message == messages_.end()) continue;
    Delivery delivery{message->sender, receive->ticket, message->source, move_data(*message, *receive)};
    messages_.erase(message);
    receives_.erase(receive);
    return delivery;
  }
  return std::nullopt;
}

void Mailbox::withdraw(Ticket ticket) {
  std::erase_if(messages_, [&](const Message& m) { return m.sender == ticket; });
  std::erase_if(receives_, [&](const Receive& r) { return r.ticket == ticket; });
}

}  // namespace altorch::loopback
