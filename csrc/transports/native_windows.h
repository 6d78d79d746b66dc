// SPDX-License-Identifier: BSD-3-Clause
// One-sided access that a transport's library carries out itself (MPI's). Thread rules: those of
// the transport's channel.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transports/message_window.h"
#include "transports/window.h"

namespace altorch {

class NativeWindows {
 public:
  // What a window is opened with, by all ranks of the group together.
  struct Opening {
    int number;  // of the window, among those of the group
    std::byte* memory;
    std::span<const Registered> registered;  // of all ranks
    std::unique_ptr<MessageWindow>
        messages;       // of the same memory; null where reduces() holds for all of `registered`
    std::string group;  // its name, for errors
    std::chrono::milliseconds timeout;
    std::function<void()>
        check_peers;  // called about every 100 ms while a rank waits; throws Error if a peer is lost
  };

  virtual ~NativeWindows() = default;
  // Why this process cannot use such a window, whatever the other ranks can, as a clause, or
  // nothing.
  virtual std::optional<std::string> windows_unsupported_reason() = 0;
  // Why such a window is not used unless the user asks for it, as a clause, or nothing.
  virtual std::optional<std::string> windows_weakness() const = 0;
  // Whether the library itself carries accumulate, fetch_add and compare_swap on elements of this
  // type.
  virtual bool windows_reduce(DType dtype) const = 0;
  // Blocks until all ranks have come. Throws Error.
  virtual std::unique_ptr<RemoteMemory> open_window(Opening opening) = 0;
};

}  // namespace altorch
