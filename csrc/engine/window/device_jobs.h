// SPDX-License-Identifier: BSD-3-Clause
// A window's calls as jobs of a device, on memory that it reaches. `target`: what the peer has registered. `ended`: not 0:
// everything is to be left as it is. They go on call.stream, and throw Error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"
#include "transports/window.h"

namespace altorch {

// Moves nothing, and raises what tells somebody; null: not even that.
WindowMove only_raise(std::uint32_t* raised, WindowCount* count, const std::uint32_t* ended);
// Of a put or a get.
WindowMove move_of(const WindowCall& call, std::byte* target, const std::uint32_t* ended);
// Throws Error(kUnsupported) of what cannot be accumulated on a GPU.
void check_update(const WindowCall& call);
void enqueue_update(Device& device, const WindowCall& call, std::byte* target, const std::uint32_t* ended);
// Each that there is for the type, of no elements.
void try_out_updates(Device& device, DType dtype, const std::uint32_t* ended, Stream stream);
// fetch_add and compare_swap. `found`, `answered`: in pinned memory.
void enqueue_count(Device& device, const WindowCall& call, std::byte* target, std::int64_t* found,
                   std::uint32_t* answered, const std::uint32_t* ended);

}  // namespace altorch
