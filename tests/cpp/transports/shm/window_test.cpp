// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/window.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace altorch::shm {
namespace {

// Two ranks that have mapped each other's memory.
struct TwoRanks {
  explicit TwoRanks(std::size_t bytes) {
    control =
        std::shared_ptr<std::byte>(new (std::align_val_t{64}) std::byte[ShmWindow::control_bytes(2)](),
                                   [](std::byte* all) { ::operator delete[](all, std::align_val_t{64}); });
    for (auto& part : parts)
      part.mapped = std::shared_ptr<std::byte>(new std::byte[bytes](), std::default_delete<std::byte[]>());
    for (int rank = 0; rank < 2; ++rank)
      windows.push_back(std::make_unique<ShmWindow>(control, rank, parts, /*crowded=*/false));
  }
  std::shared_ptr<std::byte> control;
  std::vector<ShmWindow::Part> parts = std::vector<ShmWindow::Part>(2);
  std::vector<std::unique_ptr<ShmWindow>> windows;
};

// Two pages; a read of the second blocks until `open` is set.
class SlowMemory {
 public:
  SlowMemory() {
    struct sigaction slow {};
    slow.sa_handler = [](int) {
      arrived.store(true);
      while (!open.load()) sched_yield();
      mprotect(pages + kPage, kPage, PROT_READ);
    };
    arrived.store(false);
    open.store(false);
    pages = static_cast<std::byte*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(pages, 1, kBytes);
    mprotect(pages + kPage, kPage, PROT_NONE);
    sigaction(SIGSEGV, &slow, &before_);
  }
  ~SlowMemory() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(pages, kBytes);
  }
  SlowMemory(const SlowMemory&) = delete;

  static constexpr std::size_t kPage = 64 << 10, kBytes = 2 * kPage;
  static inline std::byte* pages = nullptr;
  static inline std::atomic<bool> arrived{false}, open{false};

 private:
  struct sigaction before_ {};
};

// A rank that ends its group without its peers must wait for puts in flight: its program may use
// the memory afterwards.
TEST(ShmWindow, IsNotClosedUnderAPut) {
  TwoRanks ranks(SlowMemory::kBytes);
  const SlowMemory slow;
  std::thread putter([&] {
    WindowCall call;
    call.access = Access::kPut;
    call.peer = 0;
    call.from = SlowMemory::pages;
    call.row_bytes = call.stride = SlowMemory::kPage;
    call.rows = 2;
    std::optional<Error> error;
    ranks.windows[1]->begin(call, error);
  });
  while (!SlowMemory::arrived.load()) std::this_thread::yield();
  std::atomic<bool> closed{false};
  std::thread owner([&] {
    EXPECT_TRUE(ranks.windows[0]->close(/*agreed=*/false));
    closed.store(true);
    EXPECT_EQ(ranks.parts[0].mapped.get()[SlowMemory::kBytes - 1], std::byte{1})
        << "close() returned before the put ended";
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(closed.load());
  SlowMemory::open.store(true);
  putter.join();
  owner.join();
}

TEST(ShmWindow, RefusesWhatComesAfterItsEnd) {
  TwoRanks ranks(8);
  EXPECT_TRUE(ranks.windows[0]->close(/*agreed=*/false));
  std::byte one{1};
  WindowCall call;
  call.access = Access::kPut;
  call.peer = 0;
  call.from = &one;
  call.row_bytes = call.stride = 1;
  std::optional<Error> error;
  EXPECT_EQ(ranks.windows[1]->begin(call, error), State::kFailed);
  EXPECT_TRUE(error);
  EXPECT_EQ(*ranks.parts[0].mapped, std::byte{0});
}

}  // namespace
}  // namespace altorch::shm
