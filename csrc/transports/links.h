// SPDX-License-Identifier: BSD-3-Clause
// What a transport gives to one group: a channel for messages, native collectives if it has any,
// and a name.
#pragma once

#include <memory>
#include <vector>

#include "transports/channel.h"
#include "transports/native_collectives.h"
#include "transports/native_windows.h"
#include "transports/node.h"

namespace altorch {

class Links {
 public:
  virtual ~Links() = default;
  virtual const char* transport() const = 0;  // "mpi", "gloo"
  virtual Channel& channel() = 0;
  // Best first; none where the transport has messages only.
  virtual std::vector<NativeCollectives*> collectives() { return {}; }
  // The placement of the ranks on nodes, if the group spans several nodes and ranks of one node
  // share memory. Null otherwise.
  virtual const Node* node() { return nullptr; }
  // The one-sided access of the library that carries the group's messages. Null where it has none.
  virtual NativeWindows* native_windows() { return nullptr; }
  // The engine calls it if an operation that can never complete is still in flight. The links must
  // then release nothing that this operation may touch.
  virtual void mark_broken() = 0;
  // The engine calls it before it destroys the links, if a call was aborted for which peers may
  // still send large messages.
  virtual void mark_tainted() {}
};

// The links of a transport that has messages only, and that never releases a buffer which it may
// still touch.
class MessageLinks : public Links {
 public:
  // `transport`: a literal.
  MessageLinks(const char* transport, std::unique_ptr<Channel> channel)
      : transport_(transport), channel_(std::move(channel)) {}
  const char* transport() const override { return transport_; }
  Channel& channel() override { return *channel_; }
  void mark_broken() override {}

 private:
  const char* const transport_;
  const std::unique_ptr<Channel> channel_;
};

}  // namespace altorch
