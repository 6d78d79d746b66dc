// SPDX-License-Identifier: BSD-3-Clause
// Windows over NCCL's own, on fake GPUs and the fake NCCL. No NCCL of a GPU has carried one yet.
#include "windows/nccl_window.h"

#include <gtest/gtest.h>

#include <atomic>

#include "runtime/thread_group.h"
#include "runtime/watchdog_store.h"
#include "support/says.h"
#include "windows/fake_window_gpu.h"

namespace altorch {
namespace {

using conformance::kPatience;
using Floats = conformance::Opened<float>;

constexpr int kVersion = 22907;

using Gpu = FakeWindowGpu;

// What the ranks threw, each with a GPU of its own, or all with one.
std::vector<std::string> on_gpus(int size, const std::function<void(Gpu&, Communicator&)>& body,
                                 bool own = true) {
  ThreadGroup group(size);
  return group.run([&](int rank, Communicator& communicator) {
    Gpu gpu({.gpu = own ? "gpu " + std::to_string(rank) : "the gpu", .cannot_export = ""},
            static_cast<unsigned>(rank + 1));
    try {
      body(gpu, communicator);
    } catch (const std::runtime_error& error) {
      if (dynamic_cast<const Error*>(&error)) throw;
      throw Error(ErrorKind::kInternal, error.what());
    }
  });
}

struct Asked {
  RouteSetting setting{"window=nccl"};
  FakeNccl nccl{kVersion};
};

TEST(NcclWindow, Conforms) {
  for (const int size : {2, 3}) {
    Asked asked;
    const auto errors = on_gpus(size, [](Gpu& gpu, Communicator& communicator) {
      const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
      EXPECT_STREQ(opened.window->route(), "nccl");
      opened.close();
      conformance::window_conforms(communicator, gpu.allocate);
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(size)));
    EXPECT_EQ(asked.nccl.misuse(), std::vector<std::string>());
    EXPECT_GT(asked.nccl.calls("ncclSignal"), 0);
    EXPECT_GT(asked.nccl.calls("ncclWaitSignal"), 0);
    EXPECT_EQ(asked.nccl.calls("ncclCommWindowDeregister"), asked.nccl.calls("ncclCommWindowRegister"));
    EXPECT_EQ(asked.nccl.open_communicators(), 0);
  }
}

// From what is registered itself, which conformance has not; and what comes before it on its stream
// is there, too.
TEST(NcclWindow, PutsWhatIsRegistered) {
  Asked asked;
  const auto errors = on_gpus(3, [](Gpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 3000);
    std::fill(opened.values.begin(), opened.values.begin() + 1000, static_cast<float>(opened.rank() + 1));
    opened.barrier();
    for (int time = 0; time < 20; ++time) {
      opened.put(opened.next(), 2000, std::vector<float>(1000, static_cast<float>(time)));
      WindowCall put = opened.call(Access::kPut, opened.next(), 1000, 1000);
      put.from = opened.values.data();
      put.slot = NcclWindow::kSlot;
      opened.run(std::move(put));
      opened.wait(opened.before(), NcclWindow::kSlot);
      for (std::size_t at = 1000; at < 3000; ++at)
        conformance::expect(opened.values[at] == static_cast<float>(at < 2000 ? opened.before() + 1 : time),
                            "what was put is not there");
      opened.barrier();
    }
    opened.close();
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_EQ(asked.nccl.calls("ncclPutSignal"), 3 * 20);
  EXPECT_EQ(asked.nccl.misuse(), std::vector<std::string>());
}

TEST(NcclWindow, GraphsTakeOtherSlots) {
  Asked asked;
  const auto errors = on_gpus(2, [](Gpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    const auto signal = [&](int slot) {
      WindowCall made = opened.call(Access::kSignal, opened.next(), 0, 0);
      made.slot = slot;
      made.captured = true;
      bool free = true;
      opened.window->access(made, kPatience, free);
    };
    signal(1);
    opened.window->enqueue_wait(opened.before(), 1, opened.stream, /*captured=*/true, kPatience);
    EXPECT_TRUE(gpu.device.synchronize(opened.stream));
    opened.barrier();
    for (const bool waits : {false, true}) {
      try {
        if (waits)
          opened.window->enqueue_wait(opened.before(), 0, opened.stream, /*captured=*/true, kPatience);
        else
          signal(0);
        ADD_FAILURE() << "a graph has taken what NCCL carries";
      } catch (const Error& error) {
        EXPECT_TRUE(says(error.what(), "ALTORCH_ROUTE=window=peer")) << error.what();
      }
    }
    opened.close();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// Peers whose part never comes: the wait ends by its deadline, and what it waited for is marked.
TEST(NcclWindow, EndsWaits) {
  Asked asked;
  const auto began = std::chrono::steady_clock::now();
  const auto errors = on_gpus(2, [](Gpu& gpu, Communicator& communicator) {
    wait_for_a_rank_that_aborts(gpu, communicator, NcclWindow::kSlot);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  EXPECT_EQ(errors[0], "");
  EXPECT_TRUE(says(errors[1], "wait for a signal of rank 0")) << errors[1];
}

// All ranks release it, and one has its stream wait for what no rank has signalled.
TEST(NcclWindow, EndsWhatWaitsWhenItIsReleased) {
  Asked asked;
  const auto errors = on_gpus(2, [](Gpu& gpu, Communicator& communicator) {
    release_what_waits(gpu, communicator, NcclWindow::kSlot);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_EQ(asked.nccl.open_communicators(), 0);
}

TEST(NcclWindow, TellsWhatNcclRefuses) {
  Asked asked;
  const auto errors = on_gpus(2, [&](Gpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    opened.barrier();
    if (communicator.rank() != 0) return;
    asked.nccl.fail("ncclSignal", 0);
    opened.signal(1, NcclWindow::kSlot);
  });
  EXPECT_TRUE(says(errors[0], "signal to rank 1")) << errors[0];
  EXPECT_TRUE(says(errors[0], "ncclSignal failed")) << errors[0];
  EXPECT_EQ(errors[1], "");
}

// What stands in its way is said alike on all ranks, whatever each of them has.
struct Case {
  const char* words;
  int version = kVersion;
  bool own_gpus = true;
  std::size_t bytes[2] = {64, 64}, offsets[2] = {0, 0};
};

TEST(NcclWindow, SaysWhyThereCanBeNone) {
  const Case cases[] = {
      {.words = "on rank 0 NCCL 2.28.9 has no ncclPutSignal and ncclWaitSignal (2.29 has)", .version = 22809},
      {.words = "ranks 0 and 1 share one GPU, which NCCL refuses", .own_gpus = false},
      {.words = "the ranks' tensors are empty, or not of one size", .bytes = {64, 60}},
      {.words = "the ranks' tensors are empty, or not of one size", .bytes = {0, 0}},
      {.words = "on rank 1 the tensor does not begin at a multiple of 4096 bytes", .offsets = {0, 4}},
  };
  const RouteSetting setting("window=nccl");
  for (const Case& each : cases) {
    const FakeNccl nccl(each.version);
    const auto errors = on_gpus(
        2,
        [&](Gpu& gpu, Communicator& communicator) {
          const auto rank = static_cast<std::size_t>(communicator.rank());
          const std::vector<Registered> all = {{each.bytes[0], DType::kUInt8},
                                               {each.bytes[1], DType::kUInt8}};
          const auto memory = gpu.allocate(128);
          WatchdogStore store(communicator, one_sided(communicator, 1, kFlush, kAnySource, kPatience));
          std::string unsupported_reason;
          const auto made =
              open_nccl_window({communicator, communicator.links(), store, 1,
                                memory.get() + each.offsets[rank], all[rank], kPatience, &gpu.window, all},
                               unsupported_reason);
          EXPECT_FALSE(made);
          EXPECT_TRUE(says(unsupported_reason, each.words)) << unsupported_reason;
        },
        each.own_gpus);
    EXPECT_EQ(errors, std::vector<std::string>(2));
    EXPECT_EQ(nccl.calls("ncclCommInitRankConfig"), 0);
  }
}

// And then another row carries it.
TEST(NcclWindow, IsPassedOver) {
  const RouteSetting setting("window=nccl");
  const FakeNccl nccl(22809);
  const auto errors = on_gpus(2, [](Gpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    EXPECT_STREQ(opened.window->route(), "peer");
    opened.close();
    // What `altorch info` says.
    EXPECT_TRUE(says(nccl_window_unsupported_reason(gpu.window.gpus, 0), "NCCL 2.28.9 has no ncclPutSignal"));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(NcclWindow, ComesOnlyWhereItIsAskedFor) {
  const FakeNccl nccl(kVersion);
  const auto errors = on_gpus(2, [](Gpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    EXPECT_STREQ(opened.window->route(), "peer");
    opened.close();
    WindowGpu elsewhere = gpu.window;
    elsewhere.gpus.kernel_unsupported_reason = [] { return std::string("it has no kernels"); };
    const auto memory = gpu.allocate(64);
    open_window(communicator, memory.get(), {64, DType::kFloat32}, memory, kPatience, "", &elsewhere);
  });
  for (const std::string& error : errors)
    EXPECT_TRUE(says(error, "nccl: only where ALTORCH_ROUTE names it")) << error;
}

}  // namespace
}  // namespace altorch
