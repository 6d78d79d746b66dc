// A transport: a way to link the ranks of groups. Each has a folder, with its transport, its channel and, where it
// has them, its whole collectives; who makes a group is given one, and hands it to the groups split off.
#pragma once

#include <memory>

#include "common/membership.h"
#include "transports/links.h"

namespace altorch {

class Transport {
 public:
  virtual ~Transport() = default;
  // Collective over the group, which has met and has several ranks. `store`: its keys; looks after its ranks while
  // one waits. Throws Error, and what check_peers() throws.
  virtual std::unique_ptr<Links> open(const Membership& group, KeyValueStore& store) = 0;
  // Whether its links bring whole collectives, which a rule may ask for though something faster is there.
  virtual bool has_collectives() const { return false; }
  // A group that it was opened for is destroyed. Idempotent.
  virtual void group_ends(const Membership&) {}
};

}  // namespace altorch
