// SPDX-License-Identifier: BSD-3-Clause
#include "windows/window.h"

#include <gtest/gtest.h>

#include "platform/shareable.h"
#include "runtime/thread_group.h"
#include "support/says.h"
#include "transports/message_window.h"
#include "windows/window_conformance.h"
#include "windows/windows.h"

namespace altorch {
namespace {

using conformance::Allocate;

// Whether windows may go through shared memory, for as long as it lives.
struct SharedMemory {
  explicit SharedMemory(bool allowed) {
    if (!allowed) setenv("ALTORCH_SHM_BYTES", "0", 1);
  }
  ~SharedMemory() { unsetenv("ALTORCH_SHM_BYTES"); }
};

std::shared_ptr<std::byte> plain(std::size_t bytes) {
  return {static_cast<std::byte*>(::operator new(bytes)),
          [](std::byte* memory) { ::operator delete(memory); }};
}

void conforms_on(const std::string& route, const Allocate& allocate) {
  for (const int size : {1, 2, 3, 5}) {
    const SharedMemory allowed(route == "shm");
    ThreadGroup group(size);
    const auto errors = group.run([&](int, Communicator& communicator) {
      try {
        const conformance::Opened<float> opened(communicator, allocate, DType::kFloat32, 8);
        conformance::expect(opened.window->route() == route, opened.window->route());
        conformance::expect((opened.window->map(opened.next()) != nullptr) ==
                                (route == "shm" && (size == 1 || find_shareable(opened.memory.get(), 8))),
                            "what can be mapped");
        opened.close();
        conformance::window_conforms(communicator, allocate);
      } catch (const std::runtime_error& error) {
        throw Error(ErrorKind::kInternal, error.what());
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "") << size << " ranks";
  }
}

TEST(Window, ConformsInSharedMemory) { conforms_on("shm", allocate_shareable); }
TEST(Window, ConformsInMemoryThatTheSystemCopies) { conforms_on("shm", plain); }
TEST(Window, ConformsOverMessages) { conforms_on("messages", plain); }

// A window over messages to a peer that is stopped.
struct SilentPeer {
  std::shared_ptr<Communicator> group = std::make_shared<Communicator>(
      Membership{"test", {0, 1}, std::make_shared<MapStore>(), nullptr},
      std::make_unique<MessageLinks>("silent", std::make_unique<SilentChannel>()));
  std::vector<std::byte> memory = std::vector<std::byte>(64);
  std::shared_ptr<Window> window = std::make_shared<Window>(
      *group, 1, std::vector<Registered>(2, {memory.size(), DType::kUInt8}),
      std::make_unique<MessageWindow>(group->links().channel(), 0, memory.data(), memory.size()), nullptr);

  SilentPeer() { Windows::of(*group).add(window); }
  ~SilentPeer() {
    group->close("the test is over");
    Windows::of(*group).release();
  }
  std::shared_ptr<WindowTask> put(std::chrono::milliseconds timeout) {
    WindowCall call;
    call.access = Access::kPut;
    call.peer = 1;
    call.from = memory.data();
    call.row_bytes = call.stride = 8;
    auto task = window->start(std::move(call), timeout);
    window->post(task);
    return task;
  }
};

// What it throws.
std::string outcome(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Window, FlushTellsWhatFailed) {
  SilentPeer peer;
  const auto task = peer.put(std::chrono::milliseconds(100));
  const std::string told = outcome([&] { peer.window->flush(1); });
  EXPECT_TRUE(says(told, "window 1: put to rank 1: timed out, not done after its timeout of 0.1 s")) << told;
  EXPECT_TRUE(task->finished());
  const std::string later = outcome([&] { peer.window->flush(1); });
  EXPECT_TRUE(
      says(later, "window 1: flush of rank 1: the group is closed since window 1: put to rank 1 failed"))
      << later;
  const std::string all = outcome([&] { peer.window->flush(kAnySource); });
  EXPECT_TRUE(says(all, "window 1: flush: the group is closed")) << all;
}

TEST(Window, FenceTellsWhatFailed) {
  SilentPeer peer;
  peer.put(std::chrono::milliseconds(100));
  const std::string told = outcome([&] { peer.window->fence(std::chrono::seconds(20)); });
  EXPECT_TRUE(says(told, "window 1: put to rank 1: timed out, not done after its timeout of 0.1 s")) << told;
}

TEST(Window, FenceSaysWhoHasNotCome) {
  SilentPeer peer;
  const std::string told = outcome([&] { peer.window->fence(std::chrono::milliseconds(100)); });
  EXPECT_TRUE(says(told, "window 1: fence: rank 1 of the group has not come")) << told;
  EXPECT_TRUE(says(told, "timeout of 0.1 s")) << told;
}

TEST(Window, ReleaseEndsThoughAnotherThreadGoesOn) {
  SilentPeer peer;
  std::string refused;
  std::atomic<bool> begun{false};
  std::thread other([&] {
    while (refused.empty()) {
      refused = outcome([&] { peer.put(std::chrono::seconds(600)); });
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  while (!begun) std::this_thread::yield();
  const std::string told = outcome([&] { peer.window->close(std::chrono::milliseconds(200)); });
  other.join();
  EXPECT_TRUE(
      says(told, "window 1: the end of it on all ranks: timed out, not done after its timeout of 0.2 s"))
      << told;
  EXPECT_TRUE(says(refused, "window 1: put to rank 1: the window is being released")) << refused;
}

// Its peer ends the group while this rank waits.
TEST(Window, WaitsEndWithTheGroup) {
  for (const bool shared : {true, false}) {
    const SharedMemory allowed(shared);
    ThreadGroup group(2);
    const auto errors = group.run([&](int rank, Communicator& communicator) {
      const conformance::Opened<float> opened(communicator, plain, DType::kFloat32, 8);
      if (rank == 0) {
        communicator.close("the group was aborted");
        return;
      }
      std::thread closer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        communicator.close("the group was aborted");
      });
      try {
        opened.wait(0, 0);
      } catch (...) {
        closer.join();
        throw;
      }
      closer.join();
    });
    EXPECT_EQ(errors[0], "");
    EXPECT_TRUE(says(errors[1], "aborted")) << errors[1];
  }
}

// A rank that ends its group without the others: they are told, and write nothing more.
TEST(Window, KnowsWhoHasLeft) {
  ThreadGroup group(2);
  std::atomic<bool> left{false};
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    const conformance::Opened<float> opened(communicator, plain, DType::kFloat32, 8);
    opened.barrier();
    if (rank == 0) {
      communicator.close("the group was destroyed");
      opened.window->close(std::chrono::seconds(5));  // needs no peer now
      left = true;
      return;
    }
    while (!left) std::this_thread::yield();
    opened.put(0, 0, {1.0f, 2.0f});
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_TRUE(says(errors[1], "has closed the window")) << errors[1];
  EXPECT_TRUE(says(errors[1], "put to rank 0")) << errors[1];
}

}  // namespace
}  // namespace altorch
