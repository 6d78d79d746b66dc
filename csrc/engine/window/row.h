// SPDX-License-Identifier: BSD-3-Clause
// A way to the memory of other ranks, as a row: who opens a window takes the first that all ranks can have.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/communicator.h"
#include "engine/gpu/on_error.h"
#include "engine/route/gpu_source.h"
#include "transports/links.h"
#include "transports/window.h"

namespace altorch {

// Of a window on GPUs: this rank's.
struct WindowGpu {
  int device = 0;
  GpuSource gpus = {};
  OnError on_error = OnError::kPoison;
};

// What a window is opened with, by all ranks of the group together.
struct WindowOpening {
  Communicator& group;
  Links& links;
  KeyValueStore& store;  // keys of this window; looks after the ranks while one waits
  int number;            // of the window, among those of the group
  std::byte* memory;     // of this rank
  Registered own;        // what it is
  std::chrono::milliseconds timeout;
  const WindowGpu* gpu = nullptr;               // null: the memory is the host's
  std::span<const Registered> registered = {};  // of all ranks
};

struct WindowRow {
  const char* name;
  const char* summary;
  // Why this process can have no such window in a group of so many ranks, as a clause, or nothing.
  std::optional<std::string> (*unsupported_reason)(int ranks);
  // Null where it turned out, alike on every rank, that it cannot be; `unsupported_reason` is a clause then. Throws Error.
  std::unique_ptr<RemoteMemory> (*open)(const WindowOpening& opening, std::string& unsupported_reason);
};

// The tags of a window, between those of users and those of the engine (Communicator::max_message_tag()): the first of
// MessageWindow::kTags, and behind them one for its fences.
std::int64_t first_window_tag(const Communicator& group, int number);

// `rank` has told of memory that does not hold its window.
inline Error outside(std::size_t rank) {
  return Error(ErrorKind::kTransport, "what rank " + std::to_string(rank) +
                                          " of the group lets others map does not hold its window");
}

// Best first. Of those for host memory the last one serves everywhere.
std::span<const WindowRow> window_rows();
std::span<const WindowRow> device_window_rows();

}  // namespace altorch
