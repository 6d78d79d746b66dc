// Shared memory as a transport of groups whose ranks are on one node. Groups of several nodes are left to another
// transport, as are the collectives that only that has (an MPI's own).
#pragma once

#include "transports/transport.h"

namespace altorch {

class ShmTransport : public Transport {
 public:
  explicit ShmTransport(std::shared_ptr<Transport> other) : other_(std::move(other)) {}
  std::unique_ptr<Links> open(const Membership& group, KeyValueStore& store) override;
  void group_ends(const Membership& group) override { other_->group_ends(group); }

 private:
  const std::shared_ptr<Transport> other_;
};

}  // namespace altorch
