// A way to the memory of other ranks, as a row: who opens a window takes the first that all ranks can have.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/communicator.h"
#include "transports/links.h"
#include "transports/window.h"

namespace altorch {

// What a window is opened with, by all ranks of the group together.
struct WindowOpening {
  Communicator& group;
  Links& links;
  KeyValueStore& store;  // keys of this window; looks after the ranks while one waits
  int number;            // of the window, among those of the group
  std::byte* memory;     // of this rank
  std::size_t bytes;
  std::chrono::milliseconds timeout;
};

struct WindowRow {
  const char* name;
  const char* summary;
  // Why this process can have no such window in a group of so many ranks, as a clause, or nothing.
  std::optional<std::string> (*obstacle)(int ranks);
  // Null where it turned out, alike on every rank, that it cannot be; `why_not` is a clause then. Throws Error.
  std::unique_ptr<RemoteMemory> (*open)(const WindowOpening& opening, std::string& why_not);
};

// Best first. The last one serves everywhere.
std::span<const WindowRow> window_rows();

}  // namespace altorch
