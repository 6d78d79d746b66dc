// SPDX-License-Identifier: BSD-3-Clause
// A transport connects the ranks of groups. Each transport has a folder with its Transport, its Channel and, if it has any,
// its native collectives. A group gets its transport when it is made, and passes it on to groups that are split from it.
#pragma once

#include <memory>

#include "rendezvous/membership.h"
#include "transports/links.h"

namespace altorch {

class Transport {
 public:
  virtual ~Transport() = default;
  // Collective over a group of several ranks. `store`: of its keys; it checks the group's ranks while one waits. Throws
  // Error, and what check_peers() throws.
  virtual std::unique_ptr<Links> open(const Membership& group, KeyValueStore& store) = 0;
  // Whether its links have native collectives. A rule may ask for these although a faster way exists.
  virtual bool has_collectives() const { return false; }
  // Called when a group that it was opened for is destroyed. Idempotent.
  virtual void group_ends(const Membership&) {}
};

}  // namespace altorch
