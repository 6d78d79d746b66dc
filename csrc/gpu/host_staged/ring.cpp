// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/ring.h"

namespace altorch {

Slot Ring::take() {
  const std::size_t i = next_;
  next_ = (next_ + 1) % slots();
  Flags& flags = reinterpret_cast<Flags*>(memory_.get())[i];
  std::byte* data = memory_.get() + slots() * sizeof(Flags) + i * slot_bytes_;
  return {data, &flags.filled, &flags.carried, &flags.free, ++rounds_[i]};
}

}  // namespace altorch
