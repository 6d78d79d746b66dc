// SPDX-License-Identifier: BSD-3-Clause
// The ways to reach the memory of other ranks, one WindowRow each. A new window takes the first of
// select/table.h that all ranks support.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gpu/gpu_source.h"
#include "gpu/on_error.h"
#include "runtime/communicator.h"
#include "transports/links.h"
#include "transports/window.h"

namespace altorch {

// This rank's GPU, for a window on GPUs.
struct WindowGpu {
  int device = 0;
  GpuSource gpus = {};
  OnError on_error = OnError::kPoison;
};

// What a window is opened with, by all ranks of the group together.
struct WindowOpening {
  Communicator& group;
  Links& links;
  KeyValueStore& store;  // keys of this window; checks the peers while this rank waits
  int number;            // of the window, among those of the group
  std::byte* memory;     // of this rank
  Registered own;        // its size and type
  std::chrono::milliseconds timeout;
  const WindowGpu* gpu = nullptr;               // null: the memory is the host's
  std::span<const Registered> registered = {};  // of all ranks
  bool named = false;                           // by ALTORCH_ROUTE
};

struct WindowRow {
  std::string_view name;  // in select/table.h, which says which comes first
  // Why this process can have no such window in a group of `ranks` ranks, as a clause, or nothing.
  std::optional<std::string> (*unsupported_reason)(int ranks);
  // Opens the window. Null: it is unsupported, on all ranks alike, and `unsupported_reason` says
  // why, as a clause. Throws Error.
  std::unique_ptr<RemoteMemory> (*open)(const WindowOpening& opening, std::string& unsupported_reason);
};

// The first tag of a window. A window has MessageWindow::kTags tags, and one more behind them for
// its fences. They lie between the tags of users and those of the engine
// (TagLayout).
std::int64_t first_window_tag(const Communicator& group, int number);

// The error if the memory that `rank` lets its peers map does not hold its window.
inline Error outside(std::size_t rank) {
  return Error(ErrorKind::kTransport, "what rank " + std::to_string(rank) +
                                          " of the group lets others map does not hold its window");
}

std::span<const WindowRow> window_rows();
std::span<const WindowRow> device_window_rows();
// `name`: of select/table.h.
const WindowRow& window_row_named(std::string_view name, bool on_gpu);

}  // namespace altorch
