// SPDX-License-Identifier: BSD-3-Clause
#include "windows/device_window.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <numeric>

#include "runtime/thread_group.h"
#include "support/says.h"
#include "windows/fake_window_gpu.h"

namespace altorch {
namespace {

using conformance::kPatience;

using Gpu = FakeWindowGpu;

// GPUs of their own; one that all share, so that no kernel may wait for another rank's; those that
// map nothing of each other; those of a node each.
enum Place { kOwn, kShared, kApart, kNodes };
constexpr Place kPlaces[] = {kOwn, kShared, kApart, kNodes};
constexpr const char* kRoutes[] = {"peer", "peer", "host_staged", "host_relay"};
Surroundings surroundings(Place place, int rank) {
  return {.gpu = place == kShared ? "the gpu" : "gpu " + std::to_string(rank),
          .node = place == kNodes ? "node " + std::to_string(rank) : "here",
          .cannot_export = place == kApart ? "nothing can be mapped in this test" : ""};
}

using Body = std::function<void(Gpu&, Communicator&)>;
std::vector<std::string> on_gpus(ThreadGroup& group, Place place, const Body& body) {
  return group.run([&](int rank, Communicator& communicator) {
    Gpu gpu(surroundings(place, rank), static_cast<unsigned>(rank + 1));
    try {
      body(gpu, communicator);
    } catch (const std::runtime_error& error) {
      if (dynamic_cast<const Error*>(&error)) throw;
      throw Error(ErrorKind::kInternal, error.what());
    }
  });
}

TEST(DeviceWindow, Conforms) {
  for (const Place place : kPlaces) {
    for (const int size : {1, 2, 3}) {
      ThreadGroup group(size);
      const auto errors = on_gpus(group, place, [&](Gpu& gpu, Communicator& communicator) {
        {
          const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 8);
          EXPECT_STREQ(opened.window->route(), place == kNodes && size == 1 ? "peer" : kRoutes[place]);
          opened.close();
        }
        conformance::window_conforms(communicator, gpu.allocate);
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "") << size << " ranks " << place;
    }
  }
}

TEST(DeviceWindow, GivesItsMemoryBackWhenAllRanksCloseIt) {
  for (const Place place : kPlaces) {
    ThreadGroup group(3);
    const auto errors = on_gpus(group, place, [&](Gpu& gpu, Communicator& communicator) {
      for (int time = 0; time < 5; ++time) {
        const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 70'000);
        opened.put(opened.next(), 0, std::vector<float>(70'000, 1.0f), /*slot=*/0);
        opened.wait(opened.before(), 0);
        opened.close();
        EXPECT_EQ(opened.memory.use_count(), 1) << "the window keeps it";
      }
    });
    EXPECT_EQ(errors, std::vector<std::string>(3)) << place;
  }
}

// Of any type that can be added.
TEST(DeviceWindow, AddsElementsBesideEachOther) {
  for (const Place place : {kOwn, kApart, kNodes}) {
    ThreadGroup group(2);
    const auto errors = on_gpus(group, place, [](Gpu& gpu, Communicator& communicator) {
      const conformance::Opened<double> complex(communicator, gpu.allocate, DType::kComplex128, 2 * 33);
      std::vector<double> ones(2 * 33, 1.5);
      for (int time = 0; time < 4; ++time) {
        WindowCall made = complex.call(Access::kAccumulate, 0, 0, 66);
        made.from = ones.data();
        complex.run(std::move(made));
      }
      complex.barrier();
      if (communicator.rank() == 0) {
        for (const double each : complex.values) conformance::expect(each == 12.0, "a complex sum is wrong");
      }
      complex.close();
    });
    EXPECT_EQ(errors, std::vector<std::string>(2));
  }
}

TEST(DeviceWindow, SaysWhyThereCanBeNone) {
  ThreadGroup group(2);
  const auto errors = on_gpus(group, kOwn, [](Gpu& gpu, Communicator& communicator) {
    std::vector<float> plain(8);
    const WindowGpu* const where = communicator.rank() == 1 ? nullptr : &gpu.window;
    try {
      open_window(communicator, reinterpret_cast<std::byte*>(plain.data()), {32, DType::kFloat32}, nullptr,
                  kPatience, "", where);
      ADD_FAILURE() << "a GPU and a CPU in one window";
    } catch (const Error& error) {
      EXPECT_TRUE(says(error.what(), "is on a GPU") || says(error.what(), "is on the CPU")) << error.what();
    }
    WindowGpu elsewhere = gpu.window;
    if (communicator.rank() == 1)
      elsewhere.gpus.kernel_unsupported_reason = [] { return std::string("it has no kernels"); };
    open_window(communicator, reinterpret_cast<std::byte*>(plain.data()), {32, DType::kFloat32}, nullptr,
                kPatience, "", &elsewhere);
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(says(error, "peer: on rank 0 the tensor was not made by altorch.empty")) << error;
    EXPECT_TRUE(says(error, "host_staged: on rank 1 it has no kernels")) << error;
    EXPECT_TRUE(says(error, "host_relay: on rank 1 it has no kernels")) << error;
  }
}

// A stream that waits for a rank that has aborted goes on, and what it waited for is marked.
void expect_end_of_wait(Place place, bool captured) {
  ThreadGroup group(2);
  const auto errors = on_gpus(group, place, [captured](Gpu& gpu, Communicator& communicator) {
    wait_for_a_rank_that_aborts(gpu, communicator, 3, captured);
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_TRUE(says(errors[1], "wait for a signal of rank 0")) << errors[1];
}

TEST(DeviceWindow, EndsWaitsOfStreams) {
  for (const Place place : kPlaces) expect_end_of_wait(place, /*captured=*/false);
}

// Of which the host knows by what it tells of itself.
TEST(DeviceWindow, EndsWaitsOfGraphs) { expect_end_of_wait(kOwn, /*captured=*/true); }

// Through pinned memory that both ranks share, and by messages.
class DeviceWindowByHosts : public ::testing::TestWithParam<Place> {};
INSTANTIATE_TEST_SUITE_P(Places, DeviceWindowByHosts, ::testing::Values(kApart, kNodes),
                         [](const auto& place) { return place.param == kApart ? "Apart" : "Nodes"; });

// More than the slots of a lane hold, and more pieces than may be under way at once; rows that are
// longer than a slot, too.
TEST_P(DeviceWindowByHosts, MovesInPieces) {
  constexpr std::size_t kRow = 70000, kRows = 70, kStride = kRow + 3;
  ThreadGroup group(2);
  const auto errors = on_gpus(group, GetParam(), [](Gpu& gpu, Communicator& communicator) {
    const conformance::Opened<std::int64_t> opened(communicator, gpu.allocate, DType::kInt64,
                                                   kRows * kStride);
    std::vector<std::int64_t> sent(kRows * kRow), back(sent.size());
    std::iota(sent.begin(), sent.end(), std::int64_t{1000000000} * communicator.rank());
    opened.barrier();
    const auto all = [&](Access access) {
      WindowCall made = opened.call(access, opened.next(), 0, kRow);
      made.rows = kRows;
      made.stride = kStride * sizeof(std::int64_t);
      made.from = sent.data();
      made.into = back.data();
      if (access != Access::kGet) made.slot = 1;
      opened.run(std::move(made));
    };
    all(Access::kPut);
    opened.wait(opened.before(), 1);
    all(Access::kGet);
    conformance::expect(back == sent, "what was put in pieces is not what is got");
    opened.barrier();
    all(Access::kAccumulate);
    opened.wait(opened.before(), 1);
    for (std::size_t row = 0; row < kRows; ++row) {
      const std::int64_t* const there = opened.values.data() + row * kStride;
      const auto first = std::int64_t{1000000000} * opened.before() + static_cast<std::int64_t>(row * kRow);
      conformance::expect(
          there[0] == 2 * first && there[kRow - 1] == 2 * (first + static_cast<std::int64_t>(kRow) - 1),
          "what was added in pieces is not there");
      conformance::expect(there[kRow] == 0 && there[kStride - 1] == 0, "something lies beside it");
    }
    opened.close();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// More streams than there are lanes, of which those that wait do not hold up the others.
TEST_P(DeviceWindowByHosts, StreamsDoNotHoldEachOtherUp) {
  ThreadGroup group(2);
  const auto errors = on_gpus(group, GetParam(), [](Gpu& gpu, Communicator& communicator) {
    const conformance::Opened<std::int64_t> opened(communicator, gpu.allocate, DType::kInt64, 16);
    const std::vector<std::int64_t> mine = {1, 2, 3};
    std::vector<Stream> streams;
    for (int each = 0; each < 6; ++each) streams.push_back(gpu.device.make_stream());
    opened.barrier();
    const auto put_on = [&](Stream stream, int slot) {
      WindowCall made = opened.call(Access::kPut, opened.next(), static_cast<std::size_t>(2 * slot), 2);
      made.from = mine.data();
      made.slot = slot;
      made.stream = stream;
      bool free = true;
      opened.window->access(made, kPatience, free);
    };
    // The first one waits for what the peer sends from another stream, behind it in the order of
    // the calls.
    opened.window->enqueue_wait(opened.before(), 5, streams[0], false, kPatience);
    put_on(streams[0], 0);
    for (int each = 1; each < 6; ++each) put_on(streams[static_cast<std::size_t>(each)], each);
    for (int slot = 0; slot < 5; ++slot)
      opened.window->enqueue_wait(opened.before(), slot, opened.stream, false, kPatience);
    for (const Stream stream : streams) conformance::expect(gpu.device.synchronize(stream), "a stream hangs");
    conformance::expect(gpu.device.synchronize(opened.stream), "a stream hangs");
    opened.close();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// A rank that ends its group has told its peer what its streams had signalled before.
TEST_P(DeviceWindowByHosts, SignalsReachAPeerThatWaitsBeforeTheirRankLeaves) {
  ThreadGroup group(2);
  const auto errors = on_gpus(group, GetParam(), [](Gpu& gpu, Communicator& communicator) {
    const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 4);
    opened.barrier();
    if (communicator.rank() == 0) {
      WindowCall made = opened.call(Access::kSignal, 1, 0, 0);
      made.slot = 3;
      bool free = true;
      opened.window->access(made, kPatience, free);
      EXPECT_TRUE(gpu.device.synchronize(opened.stream));
    } else {
      opened.window->enqueue_wait(0, 3, opened.stream, /*captured=*/false, kPatience);
      EXPECT_TRUE(gpu.device.synchronize(opened.stream));
      for (const float each : opened.values) EXPECT_EQ(each, 0.0f);
    }
    opened.window->release(/*agreed=*/false);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// A stream that waits for the help of a rank that has gone goes on, and what was to be got is
// marked.
TEST_P(DeviceWindowByHosts, EndsAccessesThatNoPeerAnswers) {
  ThreadGroup group(2);
  std::atomic<bool> gone = false;
  const auto errors = on_gpus(group, GetParam(), [&](Gpu& gpu, Communicator& communicator) {
    const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 100);
    opened.barrier();
    if (communicator.rank() == 0) {
      while (!gone) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      opened.window->release(/*agreed=*/false);
      gone = false;
      return;
    }
    const PinnedMemory pinned = gpu.device.pin(sizeof(Flag));
    Flag& begins = *reinterpret_cast<Flag*>(pinned.get());
    gpu.device.wait_for_flag(begins, 1, opened.stream);
    std::vector<float> into(50);
    WindowCall made = opened.call(Access::kGet, 0, 0, into.size());
    made.into = into.data();
    bool free = true;
    opened.window->access(made, std::chrono::milliseconds(300), free);
    for (gone = true; gone;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    begins.raise(1);
    while (opened.window->look()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(gpu.device.synchronize(opened.stream));
    for (const float each : into) EXPECT_TRUE(std::isnan(each));
    EXPECT_TRUE(opened.window->failure());
    throw *opened.window->failure();
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_TRUE(says(errors[1], "get from rank 0")) << errors[1];
}

// However many accesses come after it.
TEST_P(DeviceWindowByHosts, LooksAfterTheOldestWait) {
  ThreadGroup group(2);
  std::atomic<bool> over = false;
  const auto errors = on_gpus(group, GetParam(), [&](Gpu& gpu, Communicator& communicator) {
    const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 4);
    opened.barrier();
    if (communicator.rank() == 0) {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      opened.window->release(/*agreed=*/false);
      return;
    }
    const Stream waits = gpu.device.make_stream();
    opened.window->enqueue_wait(0, 3, waits, false, std::chrono::milliseconds(1));
    const float value = 1;
    for (int time = 0; time < 1100; ++time) {
      WindowCall made = opened.call(Access::kPut, 0, 0, 1);
      made.from = &value;
      bool free = true;
      opened.window->access(made, kPatience, free);
    }
    for (int time = 0; time < 50 && opened.window->look(); ++time)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto failure = opened.window->failure();
    over = true;
    opened.window->release(/*agreed=*/false);
    EXPECT_TRUE(gpu.device.synchronize(waits));
    if (failure) throw *failure;
  });
  EXPECT_TRUE(says(errors[1], "wait for a signal of rank 0")) << errors[1];
}

// A call that fails before all of it is enqueued: what its stream has of it goes on.
TEST_P(DeviceWindowByHosts, EndsWhatIsHalfEnqueued) {
  ThreadGroup group(2);
  std::atomic<bool> gone = false;
  const auto errors = on_gpus(group, GetParam(), [&](Gpu& gpu, Communicator& communicator) {
    const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 8 << 20);
    opened.barrier();
    if (communicator.rank() == 0) {
      while (!gone) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      opened.window->release(/*agreed=*/false);
      gone = false;
      return;
    }
    const PinnedMemory pinned = gpu.device.pin(sizeof(Flag));
    Flag& begins = *reinterpret_cast<Flag*>(pinned.get());
    gpu.device.wait_for_flag(begins, 1, opened.stream);
    const std::vector<float> sent(opened.values.size(), 1);
    WindowCall made = opened.call(Access::kPut, 0, 0, sent.size());
    made.from = sent.data();
    std::thread leaves([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      gone = true;
      while (gone) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      begins.raise(1);
    });
    bool free = true;
    std::optional<Error> failure;
    try {
      opened.window->access(made, std::chrono::milliseconds(500), free);
    } catch (const Error& error) {
      failure = error;
    }
    leaves.join();
    EXPECT_TRUE(gpu.device.synchronize(opened.stream)) << "its stream hangs";
    opened.window->release(/*agreed=*/false);
    if (failure) throw *failure;
  });
  EXPECT_TRUE(says(errors[1], "put to rank 0")) << errors[1];
}

// As a graph does it: what was enqueued comes once more, without the host.
// Its stream has other work first, which no rank is to blame for.
TEST_P(DeviceWindowByHosts, TheTimeOfAnAccessBeginsWhenItsStreamComesToIt) {
  using std::chrono::milliseconds;
  ThreadGroup group(2);
  const auto errors = on_gpus(group, GetParam(), [](Gpu& gpu, Communicator& communicator) {
    const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 4);
    FakeDevice::launch([] { std::this_thread::sleep_for(milliseconds(900)); }, opened.stream);
    const float value = 1;
    WindowCall put = opened.call(Access::kPut, opened.next(), 0, 1);
    put.from = &value;
    bool free = true;
    opened.window->access(put, milliseconds(300), free);
    while (opened.window->look()) std::this_thread::sleep_for(milliseconds(10));
    EXPECT_TRUE(gpu.device.synchronize(opened.stream));
    EXPECT_FALSE(opened.window->failure());
    opened.close();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(DeviceWindow, CountsSignalsOnTheDevice) {
  ThreadGroup group(2);
  const auto errors = on_gpus(group, kOwn, [](Gpu&, Communicator& communicator) {
    Gpu gpu(surroundings(kOwn, communicator.rank()), 7);
    const conformance::Opened<float> opened(communicator, gpu.allocate, DType::kFloat32, 4);
    for (int time = 0; time < 3; ++time) {
      WindowCall made = opened.call(Access::kSignal, opened.next(), 0, 0);
      made.slot = 2;
      made.captured = true;
      bool free = true;
      opened.window->access(made, kPatience, free);
      opened.window->enqueue_wait(opened.before(), 2, opened.stream, /*captured=*/true, kPatience);
    }
    EXPECT_TRUE(gpu.device.synchronize(opened.stream));
    EXPECT_TRUE(opened.window->look()) << "graphs may be replayed at any time";
    EXPECT_FALSE(opened.window->failure());
    opened.close();
    EXPECT_FALSE(opened.window->look());
    // What is replayed afterwards goes on, and does nothing.
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

}  // namespace
}  // namespace altorch
