// SPDX-License-Identifier: BSD-3-Clause
// What a transport gives to one group: a channel for messages, native collectives if it has any, and a name.
#pragma once

#include <memory>
#include <vector>

#include "transports/channel.h"
#include "transports/native_collectives.h"
#include "transports/node.h"

namespace altorch {

class MpiGroup;

class Links {
 public:
  virtual ~Links() = default;
  virtual const char* transport() const = 0;  // "mpi", "gloo"
  virtual Channel& channel() = 0;
  // Best first; none where the transport has messages only.
  virtual std::vector<NativeCollectives*> collectives() { return {}; }
  // Where the group spans several nodes, and some of them share memory: how. Null otherwise.
  virtual const Node* node() { return nullptr; }
  // What MPI has of all ranks of the group, where its messages go over MPI. Null otherwise.
  virtual MpiGroup* mpi() { return nullptr; }
  // Something is still in flight that can never be completed: release nothing that it may touch.
  virtual void mark_broken() = 0;
  // A call was aborted, and peers may still send large messages for it at any time.
  virtual void mark_tainted() {}
};

// Of a transport that has messages only, and that gives no buffer back which it may still touch.
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
