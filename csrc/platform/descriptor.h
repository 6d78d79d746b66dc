// SPDX-License-Identifier: BSD-3-Clause
// An owned file descriptor: the destructor closes it.
#pragma once

#include <unistd.h>

#include <utility>

namespace altorch {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int operator*() const { return number_; }
  // Passes the ownership to the caller.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace altorch
