// SPDX-License-Identifier: BSD-3-Clause
// Memory of this process that others of its node can map: what their windows reach without the
// system's help.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "platform/descriptor.h"

namespace altorch {

// Zero at first. Throws Error(kTransport). Thread rules: any thread.
std::shared_ptr<std::byte> allocate_shareable(std::size_t bytes);

// Where such memory lies.
struct Shareable {
  Descriptor descriptor;  // a copy of one's own
  std::size_t bytes = 0;  // of all that it stands for
  std::size_t offset = 0;
};
// Nothing where the block is no part of such memory.
std::optional<Shareable> find_shareable(const void* block, std::size_t bytes);
// Memory of another kind, that of a GPU, which find_shareable() is to know until
// forget_shareable(). `memory`: its address.
void remember_shareable(const void* memory, std::size_t bytes, Descriptor descriptor);
void forget_shareable(const void* memory);
// What a peer has sent. Throws Error(kTransport), also where it is smaller than it should be.
std::shared_ptr<std::byte> map_shareable(const Descriptor& descriptor, std::size_t bytes);

}  // namespace altorch
