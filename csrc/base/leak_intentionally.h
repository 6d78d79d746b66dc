// SPDX-License-Identifier: BSD-3-Clause
// Leaks memory intentionally: MPI, a device or another process may write to it for as long as this
// process lives. Thread rules: any thread.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace altorch {

// Keeps a pointer to the object, so that leak checkers see that it is reachable.
inline void record_leak(void* object) noexcept {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<void*>;
  const std::lock_guard lock(*mutex);
  try {
    kept->push_back(object);
  } catch (const std::bad_alloc&) {  // leaked all the same
  }
}

template <class T>
void leak_intentionally(std::unique_ptr<T> object) noexcept {
  record_leak(object.release());
}

}  // namespace altorch
