// What a transport gives to one group: messages, perhaps whole collectives, and a name.
#pragma once

#include <memory>

#include "transports/channel.h"
#include "transports/whole_collectives.h"

namespace altorch {

class Links {
 public:
  virtual ~Links() = default;
  virtual const char* transport() const = 0;  // "mpi", "loopback"
  virtual Channel& channel() = 0;
  // nullptr where the transport has none.
  virtual WholeCollectives* collectives() = 0;
  // Something is still in flight that can never be completed: release nothing that it may touch.
  virtual void mark_broken() = 0;
};

}  // namespace altorch
