// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "support/map_store.h"

namespace altorch {
namespace {

constexpr std::size_t kBytes = 1 << 20;

TEST(SharedMemory, IsOneMemoryForAllRanks) {
  constexpr int kSize = 4;
  MapStore store;
  std::vector<std::shared_ptr<std::byte>> mapped(kSize);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      mapped[static_cast<std::size_t>(rank)] =
          share_memory(store, "here", rank, kSize, kBytes, std::chrono::seconds(10));
    });
  }
  for (auto& rank : ranks) rank.join();
  mapped[3].get()[kBytes - 1] = std::byte{42};
  for (const auto& memory : mapped) {
    EXPECT_EQ(memory.get()[0], std::byte{0});
    EXPECT_EQ(memory.get()[kBytes - 1], std::byte{42});
  }
  mapped[0].reset();  // the others keep it
  EXPECT_EQ(mapped[1].get()[kBytes - 1], std::byte{42});
}

TEST(SharedMemory, SaysThatARankDidNotCome) {
  MapStore store;
  try {
    share_memory(store, "here", 0, 2, kBytes, std::chrono::milliseconds(50));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
  }
  EXPECT_THROW(share_memory(store, "nowhere", 1, 2, kBytes, std::chrono::milliseconds(50)), Error);
}

// As it is where a system call is forbidden to one rank.
TEST(SharedMemory, NoPeerWaitsForARankThatHasNone) {
  for (const int refuses : {0, 2}) {
    MapStore store;
    store.set("here/refused", "shared memory: no");  // as the rank would
    if (refuses == 0) store.set("here", "");
    const auto began = std::chrono::steady_clock::now();
    for (int rank = 0; rank < 2; ++rank) {
      try {
        if (rank == refuses) continue;
        share_memory(store, "here", rank, 3, kBytes, std::chrono::seconds(30));
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "shared memory: no");
      }
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  }
}

TEST(SharedMemory, HasANodeThatProcessesOfAUserShare) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string node = shared_memory_node();
    const bool written = write(pipe_ends[1], node.data(), node.size()) > 0;
    _exit(written ? 0 : 1);
  }
  waitpid(child, nullptr, 0);
  char text[512];
  const auto length = read(pipe_ends[0], text, sizeof text);
  ASSERT_GT(length, 40);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(length)), shared_memory_node());
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(SharedMemory, RefusesANameThatNoSocketHas) {
  MapStore store;
  store.set("here", std::string(200, 'x'));
  EXPECT_THROW(share_memory(store, "here", 1, 2, kBytes, std::chrono::seconds(10)), Error);
}

}  // namespace
}  // namespace altorch
