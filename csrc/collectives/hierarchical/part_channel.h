// SPDX-License-Identifier: BSD-3-Clause
// Some ranks of a channel, as a channel of their own.
#pragma once

#include <span>

#include "transports/channel.h"

namespace altorch::hierarchical {

// Tags are those of the whole channel. Thread rules: its.
class PartChannel : public Channel {
 public:
  explicit PartChannel(Channel& whole) : whole_(whole) {}
  // `members`: ranks of the whole channel, this one at `own`; they outlive its use. While nothing
  // is in flight.
  void become(std::span<const int> members, int own) {
    members_ = members;
    own_ = own;
  }

  int rank() const override { return own_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::int64_t max_tag() const override { return whole_.max_tag(); }
  void send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override {
    whole_.send(data, bytes, members_[static_cast<std::size_t>(peer)], tag, request);
  }
  // From a named rank.
  void receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) override {
    whole_.receive(data, bytes, members_[static_cast<std::size_t>(peer)], tag, request);
  }
  State test(std::span<Request> requests, std::optional<Error>& error) override {
    return whole_.test(requests, error);
  }
  bool cancel(std::span<Request> requests) override { return whole_.cancel(requests); }

 private:
  Channel& whole_;
  std::span<const int> members_;
  int own_ = 0;
};

}  // namespace altorch::hierarchical
