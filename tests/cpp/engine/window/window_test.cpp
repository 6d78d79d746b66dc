#include "engine/window/window.h"

#include <gtest/gtest.h>

#include "engine/thread_group.h"
#include "engine/window/window_conformance.h"
#include "support/says.h"
#include "transports/shm/shareable.h"

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
    opened.meet();
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
