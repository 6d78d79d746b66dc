// What something outside may still write to for as long as the process lives: never freed, on purpose.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace altorch {

// Listed, so that whoever looks for leaks sees that it is known.
inline void list_as_kept(void* object) noexcept {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<void*>;
  const std::lock_guard lock(*mutex);
  try {
    kept->push_back(object);
  } catch (const std::bad_alloc&) {  // kept all the same
  }
}

template <class T>
void keep_for_ever(std::unique_ptr<T> object) noexcept {
  list_as_kept(object.release());
}

}  // namespace altorch
