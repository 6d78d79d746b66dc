// SPDX-License-Identifier: BSD-3-Clause
// Copies from and to another process's memory, without a buffer in between (process_vm_readv,
// process_vm_writev). Kernels, containers and their owners may forbid it, so it is tried when a
// group is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/fields.h"

namespace altorch::shm {

struct Process {
  long pid = 0;
  std::uint64_t address = 0;  // of a number in its memory
  std::uint64_t number = 0;   // which no other process has there

  static Process own();
  static constexpr std::size_t kFields = 3;
  Fields fields() const;
  static Process from(const Fields& fields);

  // Why this process cannot copy from it; nothing: it can.
  std::optional<std::string> unsupported_reason() const;
  // False where the process is gone or another one, or has no such memory.
  bool read(std::uint64_t from, void* to, std::size_t bytes) const;
  bool write(std::uint64_t to, const void* from, std::size_t bytes) const;
};

// The error of a rank that wants the memory of `rank`, and for which read() has returned false.
Error unreadable(int rank);

}  // namespace altorch::shm
