// A buffer that grows and is kept: fresh pages cost more than the copies that they are for.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "common/error.h"

namespace altorch {

// Thread rules: one user at a time.
class Scratch {
 public:
  // At least `bytes` bytes, aligned to a cache line; what was in it is lost when it grows.
  void* reserve(std::size_t bytes) {
    if (bytes > capacity_) {
      const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
      memory_.reset();
      memory_.reset(std::aligned_alloc(4096, rounded));
      capacity_ = memory_ ? rounded : 0;
      if (!memory_) {
        throw Error(ErrorKind::kTransport, "out of host memory: " + std::to_string(rounded) +
                                               " bytes of scratch space could not be had");
      }
    }
    return memory_.get();
  }
  // Gives back what is larger than is worth keeping between operations.
  void trim() {
    if (capacity_ <= kKeep) return;
    memory_.reset();
    capacity_ = 0;
  }
  static constexpr std::size_t kKeep = std::size_t{16} << 20;

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace altorch
