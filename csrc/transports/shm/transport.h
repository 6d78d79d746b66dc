// SPDX-License-Identifier: BSD-3-Clause
// Shared memory as a transport of groups whose ranks are on one node. Beside it are the collectives
// that only another transport has (an MPI's own); one without any (Gloo) makes no connections for
// groups of one node. Groups of several nodes are linked by the other transport, and share memory
// on each node (Links::node()).
#pragma once

#include <optional>
#include <string>

#include "transports/transport.h"

namespace altorch {

class ShmTransport : public Transport {
 public:
  explicit ShmTransport(std::shared_ptr<Transport> other) : other_(std::move(other)) {}
  std::unique_ptr<Links> open(const Membership& group, KeyValueStore& store) override;
  bool has_collectives() const override { return true; }
  void group_ends(const Membership& group) override { other_->group_ends(group); }

  // Why this process cannot share memory in a group of so many ranks, as a clause, or nothing.
  static std::optional<std::string> unsupported_reason(int ranks);

 private:
  const std::shared_ptr<Transport> other_;
};

}  // namespace altorch
