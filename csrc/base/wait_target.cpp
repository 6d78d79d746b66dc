// SPDX-License-Identifier: BSD-3-Clause
#include "base/wait_target.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <limits>

namespace altorch {
namespace {

// The kernel compares 32 bits: the lower ones, which change with each raise.
const void* lower_half(const WaitTarget::Number& number) {
  static_assert(std::endian::native == std::endian::little);
  return &number;
}

}  // namespace

bool WaitTarget::sleep(std::chrono::microseconds most) const {
  if (number_ == nullptr) return false;
  sleepers_->fetch_add(1, std::memory_order_seq_cst);
  const std::uint64_t seen = number_->load(std::memory_order_seq_cst);
  if (seen < least_) {
    const timespec longest{most.count() / 1'000'000, static_cast<long>(most.count() % 1'000'000) * 1000};
    syscall(SYS_futex, lower_half(*number_), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &longest, nullptr,
            0);
  }
  sleepers_->fetch_sub(1, std::memory_order_seq_cst);
  return seen < least_;
}

void WaitTarget::interrupt() const {
  if (number_ != nullptr) wake_all(*number_);
}

void WaitTarget::wake_all(const Number& number) {
  syscall(SYS_futex, lower_half(number), FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace altorch
