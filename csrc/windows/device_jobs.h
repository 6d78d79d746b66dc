// SPDX-License-Identifier: BSD-3-Clause
// Makes jobs of a device from a window's calls, on memory that the device reaches. `target`: the
// memory that the peer has registered. `ended`: if it is not 0 when a job runs, the job changes
// nothing. The functions that enqueue use call.stream, and throw Error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.h"
#include "transports/window.h"

namespace altorch {

// A job that moves no data. It only counts in `count`, and stores the count in `raised`; null: it
// raises nothing either.
WindowMove only_raise(std::uint32_t* raised, WindowCount* count, const std::uint32_t* ended);
// The job of a put or a get.
WindowMove move_of(const WindowCall& call, std::byte* target, const std::uint32_t* ended);
// Throws Error(kUnsupported) if a GPU cannot do this accumulate.
void check_update(const WindowCall& call);
void enqueue_update(Device& device, const WindowCall& call, std::byte* target, const std::uint32_t* ended);
// Enqueues each update that exists for the type once, with no elements.
void try_out_updates(Device& device, DType dtype, const std::uint32_t* ended, Stream stream);
// For fetch_add and compare_swap. `found`, `answered`: in pinned memory.
void enqueue_count(Device& device, const WindowCall& call, std::byte* target, std::int64_t* found,
                   std::uint32_t* answered, const std::uint32_t* ended);

}  // namespace altorch
