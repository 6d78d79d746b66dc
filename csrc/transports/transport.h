// SPDX-License-Identifier: BSD-3-Clause
// A transport connects the ranks of groups. Each transport has a folder with its Transport, its
// Channel and, if it has any, its native collectives. A group gets its transport when it is made,
// and passes it on to groups that are split from it.
#pragma once

#include <memory>

#include "rendezvous/membership.h"
#include "transports/links.h"

namespace altorch {

class Transport {
 public:
  virtual ~Transport() = default;
  // Collective: all ranks of the group, at least two, call it. `store`: for keys of this group; its
  // check_peers() throws if a peer of the group cannot come any more. Throws Error, and what
  // check_peers() throws.
  virtual std::unique_ptr<Links> open(const Membership& group, KeyValueStore& store) = 0;
  // Whether its links have native collectives. The shm transport then opens these links beside its
  // own, because a rule of ALTORCH_ROUTE may name their collectives.
  virtual bool has_collectives() const { return false; }
  // Called when a group that it was opened for is destroyed. Idempotent.
  virtual void group_ends(const Membership&) {}
};

}  // namespace altorch
