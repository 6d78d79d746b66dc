// SPDX-License-Identifier: BSD-3-Clause
// Windows over NVSHMEM, on fake GPUs and the fake NVSHMEM.
#include "windows/nvshmem_window.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/thread_group.h"
#include "runtime/watchdog_store.h"
#include "support/fake_nvshmem.h"
#include "support/says.h"
#include "windows/fake_window_gpu.h"

namespace altorch {
namespace {

using conformance::kPatience;
using Floats = conformance::Opened<float>;
using Errors = std::vector<std::string>;

struct NvshmemRanks {
  RouteSetting setting{"window=nvshmem"};
  FakeNvshmem nvshmem;
  bool own_gpus = true;

  explicit NvshmemRanks(int processes, std::size_t granularity = 1, bool maps = true)
      : nvshmem(processes, granularity, maps) {}
  // What the ranks of a group threw that these processes have, in this order, each on a node of its
  // own.
  Errors run(const std::vector<int>& processes,
             const std::function<void(FakeWindowGpu&, Communicator&)>& body) {
    ThreadGroup group(static_cast<int>(processes.size()));
    return group.run([&](int rank, Communicator& communicator) {
      const int process = processes[static_cast<std::size_t>(rank)];
      const std::string name = std::to_string(process);
      nvshmem.enter(process);
      FakeWindowGpu gpu({.gpu = own_gpus ? "gpu " + name : "the gpu", .node = "node " + name},
                        static_cast<unsigned>(rank + 1));
      try {
        body(gpu, communicator);
      } catch (const std::runtime_error& error) {
        if (dynamic_cast<const Error*>(&error)) throw;
        throw Error(ErrorKind::kInternal, error.what());
      }
    });
  }
  Errors run(int size, const std::function<void(FakeWindowGpu&, Communicator&)>& body) {
    std::vector<int> processes(static_cast<std::size_t>(size));
    std::iota(processes.begin(), processes.end(), 0);
    return run(processes, body);
  }
};

Errors none(int ranks) { return Errors(static_cast<std::size_t>(ranks)); }

TEST(NvshmemWindow, Conforms) {
  for (const int size : {2, 3}) {
    for (const bool maps : {true, false}) {
      SCOPED_TRACE(maps ? "mapped" : "over a network");
      NvshmemRanks ranks(size, 1, maps);
      const auto errors = ranks.run(size, [](FakeWindowGpu& gpu, Communicator& communicator) {
        const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
        EXPECT_STREQ(opened.window->route(), "nvshmem");
        opened.close();
        conformance::window_conforms(communicator, gpu.allocate);
      });
      EXPECT_EQ(errors, none(size));
      EXPECT_EQ(ranks.nvshmem.misuse(), Errors());
      EXPECT_EQ(ranks.nvshmem.calls("nvshmemx_hostlib_init_attr"), size);
      EXPECT_GT(ranks.nvshmem.calls("nvshmemx_signal_op_on_stream"), 0);
    }
  }
}

// Puts, what the hosts relay, and signals of both, on one stream: each comes after the one before.
TEST(NvshmemWindow, KeepsTheOrderOfAStream) {
  NvshmemRanks ranks(2);
  const auto errors = ranks.run(2, [](FakeWindowGpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 100);
    const std::vector<float> ones(100, 1);
    std::vector<std::vector<float>> sent;
    for (int time = 0; time < 20; ++time) sent.emplace_back(100, static_cast<float>(time));
    for (const std::vector<float>& each : sent) {
      bool free = true;
      for (const Access access : {Access::kPut, Access::kAccumulate, Access::kSignal}) {
        WindowCall call = opened.call(access, opened.next(), 0, access == Access::kSignal ? 0 : 100);
        call.from = access == Access::kPut ? each.data() : ones.data();
        if (access == Access::kSignal) call.slot = 3;
        opened.window->access(call, kPatience, free);
      }
      opened.wait(opened.before(), 3);
      for (const float found : opened.values)
        conformance::expect(found == each[0] + 1, "a call has overtaken another");
      opened.barrier();
    }
    opened.close();
  });
  EXPECT_EQ(errors, none(2));
  EXPECT_EQ(ranks.nvshmem.misuse(), Errors());
}

// Several streams signal one slot.
TEST(NvshmemWindow, CountsSignalsOfAllStreams) {
  NvshmemRanks ranks(2);
  const auto errors = ranks.run(2, [](FakeWindowGpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    for (int stream = 0; stream < 3; ++stream) {
      void* const on = gpu.device.make_stream();
      for (int time = 0; time < 5; ++time) {
        WindowCall call = opened.call(Access::kSignal, opened.next(), 0, 0);
        call.slot = 7;
        call.stream = on;
        bool free = true;
        opened.window->access(call, kPatience, free);
      }
    }
    for (int time = 0; time < 15; ++time) opened.wait(opened.before(), 7);
    opened.close();
  });
  EXPECT_EQ(errors, none(2));
  EXPECT_EQ(ranks.nvshmem.misuse(), Errors());
}

TEST(NvshmemWindow, RefusesGraphs) {
  NvshmemRanks ranks(2);
  const auto errors = ranks.run(2, [](FakeWindowGpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    for (const bool waits : {false, true}) {
      try {
        WindowCall call = opened.call(Access::kSignal, opened.next(), 0, 0);
        call.slot = 0;
        call.captured = true;
        bool free = true;
        if (waits)
          opened.window->enqueue_wait(opened.before(), 0, opened.stream, /*captured=*/true, kPatience);
        else
          opened.window->access(call, kPatience, free);
        ADD_FAILURE() << "a graph has taken what NVSHMEM carries";
      } catch (const Error& error) {
        EXPECT_TRUE(says(error.what(), "ALTORCH_ROUTE=window=peer")) << error.what();
      }
    }
    opened.close();
  });
  EXPECT_EQ(errors, none(2));
}

// The peer's group ends: the wait ends by its deadline, and what it waited for is marked.
TEST(NvshmemWindow, EndsWaits) {
  NvshmemRanks ranks(2);
  const auto began = std::chrono::steady_clock::now();
  const auto errors = ranks.run(2, [](FakeWindowGpu& gpu, Communicator& communicator) {
    wait_for_a_rank_that_aborts(gpu, communicator, 5);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  EXPECT_EQ(errors[0], "");
  EXPECT_TRUE(says(errors[1], "wait for a signal of rank 0")) << errors[1];
  EXPECT_EQ(ranks.nvshmem.misuse(), Errors());
}

// Streams that an abort lets go on send no signal for a relayed call without an answer, nor for
// what comes behind it.
TEST(NvshmemWindow, SignalsNothingBehindWhatWasAborted) {
  NvshmemRanks ranks(2);
  std::atomic<bool> goes_on{false};
  const auto errors = ranks.run(2, [&](FakeWindowGpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    const std::vector<float> ones(8, 1);
    const auto wait_to_go_on = [&] {
      while (!goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    if (opened.rank() == 1) {
      FakeDevice::launch(wait_to_go_on, opened.stream);
      for (const Access access : {Access::kAccumulate, Access::kPut, Access::kSignal}) {
        WindowCall call = opened.call(access, 0, 0, access == Access::kSignal ? 0 : 8);
        call.from = ones.data();
        call.slot = 4;
        bool free = true;
        opened.window->access(call, kPatience, free);
      }
    }
    opened.barrier();
    if (opened.rank() == 0) opened.window->release(/*agreed=*/false);
    opened.barrier();
    goes_on = true;
    opened.window->release(/*agreed=*/false);
    EXPECT_TRUE(gpu.device.synchronize(opened.stream));
  });
  EXPECT_EQ(errors, none(2));
  EXPECT_EQ(ranks.nvshmem.signals(0), 0u);
  EXPECT_EQ(ranks.nvshmem.misuse(), Errors());
}

// A rank that has closed the window on its own gets nothing more.
TEST(NvshmemWindow, NoticesThatAPeerHasLeft) {
  NvshmemRanks ranks(2);
  const auto errors = ranks.run(2, [](FakeWindowGpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    const float one = 1;
    WindowCall call = opened.call(Access::kAccumulate, opened.next(), 0, 1);
    call.from = &one;
    opened.run(std::move(call));  // both ranks serve the window
    opened.barrier();
    if (communicator.rank() == 0) return opened.window->release(/*agreed=*/false);
    for (int time = 0; time < 1000; ++time) {
      opened.signal(0, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_TRUE(says(errors[1], "rank 0 of the group has closed the window")) << errors[1];
}

TEST(NvshmemWindow, EndsWhatWaitsWhenItIsReleased) {
  NvshmemRanks ranks(2);
  const auto errors = ranks.run(
      2, [](FakeWindowGpu& gpu, Communicator& communicator) { release_what_waits(gpu, communicator, 2); });
  EXPECT_EQ(errors, none(2));
  EXPECT_EQ(ranks.nvshmem.misuse(), Errors());
}

// Two windows, of parts of one allocation, which stays registered.
TEST(NvshmemWindow, SharesWhatIsRegistered) {
  NvshmemRanks ranks(2);
  const auto errors = ranks.run(2, [](FakeWindowGpu& gpu, Communicator& communicator) {
    const auto memory = gpu.allocate(4096);
    const auto part = [&](std::size_t begin) {
      return conformance::Allocate(
          [=](std::size_t) { return std::shared_ptr<std::byte>(memory, memory.get() + begin); });
    };
    conformance::Allocate first = part(0),
                          second = part(256 + 64 * static_cast<std::size_t>(communicator.rank()));
    first.gpu = second.gpu = &gpu.window;
    first.stream = second.stream = gpu.allocate.stream;
    const Floats one(communicator, first, DType::kFloat32, 8),
        other(communicator, second, DType::kFloat32, 8);
    EXPECT_STREQ(other.window->route(), "nvshmem");
    one.close();
    other.put(other.next(), 2, {7, 8}, 0);
    other.wait(other.before(), 0);
    conformance::expect(other.values[2] == 7 && other.values[3] == 8 && other.values[4] == 0,
                        "it lies elsewhere");
    other.close();
  });
  EXPECT_EQ(errors, none(2));
  EXPECT_EQ(ranks.nvshmem.calls("nvshmemx_buffer_register_symmetric"), 2);
  EXPECT_EQ(ranks.nvshmem.misuse(), Errors());
}

// The reason that all ranks get, whatever each of them has.
std::string refusal(NvshmemRanks& ranks, const std::vector<int>& processes,
                    const std::vector<std::size_t>& bytes = {64, 64}) {
  std::string found;
  const auto errors = ranks.run(processes, [&](FakeWindowGpu& gpu, Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const auto memory = gpu.allocate(bytes[rank]);
    std::vector<Registered> all;
    for (const std::size_t each : bytes) all.push_back({each, DType::kUInt8});
    WatchdogStore store(communicator, one_sided(communicator, 1, kFlush, kAnySource, kPatience));
    std::string reason;
    const auto made = open_nvshmem_window({communicator, communicator.links(), store, 1, memory.get(),
                                           all[rank], std::chrono::seconds(1), &gpu.window, all},
                                          reason);
    EXPECT_FALSE(made);
    if (rank == 0) found = reason;
    if (rank != 0) conformance::expect(!reason.empty(), "no reason");
  });
  EXPECT_EQ(errors, none(static_cast<int>(processes.size())));
  return found;
}

TEST(NvshmemWindow, SaysWhyThereCanBeNone) {
  {
    NvshmemRanks ranks(2, /*granularity=*/64);
    EXPECT_TRUE(
        says(refusal(ranks, {0, 1}, {64, 60}), "on rank 1 the tensor does not lie in one allocation"));
    EXPECT_TRUE(says(refusal(ranks, {0, 1}, {64, 60}), "torch.cuda.MemPool(backend.mem_allocator)"));
    EXPECT_TRUE(says(refusal(ranks, {0, 1}, {64, 128}), "not of one size"));
    ranks.own_gpus = false;
    EXPECT_TRUE(says(refusal(ranks, {0, 1}), "ranks 0 and 1 share one GPU, which NVSHMEM serves with"));
    EXPECT_EQ(ranks.nvshmem.calls("nvshmemx_hostlib_init_attr"), 0);
  }
  NvshmemRanks ranks(2);
  EXPECT_TRUE(says(refusal(ranks, {0}, {64}), "there is no other rank"));
  ranks.nvshmem.initialize_elsewhere(1);
  EXPECT_TRUE(says(refusal(ranks, {0, 1}), "on rank 1 NVSHMEM was initialized by other code"));
}

TEST(NvshmemWindow, ServesOneGroupOfProcesses) {
  NvshmemRanks ranks(3);
  const auto open = [](FakeWindowGpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    EXPECT_STREQ(opened.window->route(), "nvshmem");
    opened.close();
  };
  EXPECT_EQ(ranks.run({0, 1}, open), none(2));
  EXPECT_EQ(ranks.run({0, 1}, open), none(2));  // another group of the same processes
  EXPECT_EQ(ranks.nvshmem.calls("nvshmemx_hostlib_init_attr"), 2);
  const std::string words = nvshmem::NvshmemWorld::kOtherGroup;
  EXPECT_TRUE(says(refusal(ranks, {1, 0}), words));
  EXPECT_TRUE(says(refusal(ranks, {0, 2}), words));
  EXPECT_TRUE(says(refusal(ranks, {0, 1, 2}, {64, 64, 64}), words));
  EXPECT_EQ(ranks.nvshmem.misuse(), Errors());
}

// NVSHMEM is not called again where it has failed, or hangs; another row carries the window.
TEST(NvshmemWindow, IsLostForGood) {
  for (const bool hangs : {false, true}) {
    for (const char* const call : {"nvshmemx_hostlib_init_attr", "nvshmemx_buffer_register_symmetric"}) {
      SCOPED_TRACE(call);
      NvshmemRanks ranks(2);
      for (const int process : {0, 1})
        hangs ? ranks.nvshmem.hang(call, process) : ranks.nvshmem.fail(call, process);
      EXPECT_TRUE(says(refusal(ranks, {0, 1}), hangs ? "has not ended" : "with error"));
      const int calls = ranks.nvshmem.calls(call);
      EXPECT_TRUE(says(refusal(ranks, {0, 1}), "cannot be used in this process any more"));
      EXPECT_EQ(ranks.nvshmem.calls(call), calls);
      const auto errors = ranks.run(2, [](FakeWindowGpu& gpu, Communicator& communicator) {
        const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
        EXPECT_STREQ(opened.window->route(), "host_relay");
        opened.close();
      });
      EXPECT_EQ(errors, none(2));
      EXPECT_EQ(ranks.nvshmem.misuse(), Errors());
    }
  }
}

TEST(NvshmemWindow, ComesOnlyWhereItIsAskedFor) {
  NvshmemRanks ranks(2);
  const RouteSetting other("window=host_relay");
  const auto errors = ranks.run(2, [](FakeWindowGpu& gpu, Communicator& communicator) {
    const Floats opened(communicator, gpu.allocate, DType::kFloat32, 8);
    EXPECT_STREQ(opened.window->route(), "host_relay");
    opened.close();
  });
  EXPECT_EQ(errors, none(2));
  EXPECT_EQ(ranks.nvshmem.calls("nvshmemx_get_uniqueid"), 0);
}

}  // namespace
}  // namespace altorch
