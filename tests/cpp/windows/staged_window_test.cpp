// SPDX-License-Identifier: BSD-3-Clause
// What a window through pinned memory does once it is aborted, by the rank that asks or by the rank
// that is asked.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "support/fake_device.h"
#include "windows/device_window.h"

namespace altorch {
namespace {

constexpr int kRanks = 2;
constexpr std::size_t kCount = 64;

// A rank with its GPU, that helps the other one only when the test says so.
struct Rank {
  std::vector<std::int64_t> values = std::vector<std::int64_t>(kCount);
  FakeDevice* device = nullptr;
  std::unique_ptr<DeviceWindow> window;
  Stream stream = nullptr;

  Rank(int rank, const PinnedMemory& board, const PinnedMemory& staged) {
    const FakeDeviceOptions options{.longest_delay = std::chrono::microseconds(0), .aborts = true};
    DeviceWindow::Memory memory;
    auto made = std::make_unique<FakeDevice>(options);
    device = made.get();
    memory.of.resize(kRanks);
    memory.of[static_cast<std::size_t>(rank)] =
        DeviceMemory(DeviceMemory(), reinterpret_cast<std::byte*>(values.data()));
    memory.board = board;
    memory.staged = staged;
    memory.counts = device->allocate(DeviceWindow::count_bytes(kRanks));
    memory.told = device->pin(DeviceWindow::told_bytes(kRanks));
    FakeDeviceOptions beside = options;
    beside.beside = true;
    memory.serving = std::make_unique<FakeDevice>(beside);
    stream = device->make_stream();
    memory.device = std::move(made);
    window = std::make_unique<DeviceWindow>(
        std::move(memory), rank, Registered{kCount * sizeof(std::int64_t), DType::kInt64}, OnError::kPoison,
        /*co_resident=*/false, std::vector<std::string>(kRanks));
  }
  WindowCall call(Access access, int peer, std::size_t offset, std::size_t count) const {
    WindowCall made;
    made.access = access;
    made.peer = peer;
    made.dtype = DType::kInt64;
    made.offset = offset * sizeof(std::int64_t);
    made.row_bytes = made.stride = count * sizeof(std::int64_t);
    made.stream = stream;
    return made;
  }
  State begin(WindowCall& call) const {
    std::optional<Error> error;
    return window->begin(call, error);
  }
  State test(WindowCall& call) const {
    std::optional<Error> error;
    return window->test(call, error);
  }
};

struct Pair {
  FakeDevice memory;
  PinnedMemory board = memory.pin(DeviceWindow::board_bytes(kRanks));
  PinnedMemory staged = memory.pin(StagedBoard::bytes(kRanks));
  Rank owner{0, board, staged}, other{1, board, staged};

  ~Pair() {  // nothing waits any more
    for (Rank* each : {&owner, &other}) {
      each->window->end();
      each->device->synchronize(each->stream);
    }
  }
};

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

// Holds a stream up.
struct Gate {
  Pair& pair;
  Stream stream;
  std::shared_ptr<Flag> flag = std::make_shared<Flag>();
  Gate(Pair& both, Stream held) : pair(both), stream(held) {
    pair.other.device->wait_for_flag(*flag, 1, stream);
  }
  ~Gate() { open(); }
  void open() {
    flag->raise(1);
    pause();
  }
};

TEST(StagedWindow, SignalsNothingThatWasAborted) {
  Pair pair;
  const std::vector<std::int64_t> sent(8, 7);
  WindowCall put = pair.other.call(Access::kPut, 0, 0, sent.size());
  put.from = sent.data();
  put.slot = 2;
  ASSERT_EQ(pair.other.begin(put), State::kDone);
  WindowCall signal;
  signal.peer = 1, signal.slot = 2, signal.stream = pair.owner.stream;
  pair.owner.window->wait(signal);
  pair.other.window->end();  // the owner has not helped in time
  ASSERT_TRUE(pair.other.device->synchronize(pair.other.stream));
  pause();
  EXPECT_EQ(pair.owner.window->over(1, 2), 0u)
      << "a signal has overtaken what was put before, " << pair.owner.values[0];
}

TEST(StagedWindow, CountsNothingOnceItIsAborted) {
  Pair pair;
  WindowCall add = pair.other.call(Access::kFetchAdd, 0, 0, 1);
  add.operand = 1;
  pair.owner.values[0] = 40;
  ASSERT_EQ(pair.other.begin(add), State::kPending);
  pair.other.window->end();
  pause();
  EXPECT_EQ(pair.other.test(add), State::kPending) << "a number that no rank has given: " << add.found;
}

// A rank that ends its group answers no more, and its peer finds that out before any deadline.
TEST(StagedWindow, DoesNotWaitForWhoHasLeft) {
  Pair pair;
  WindowCall add = pair.other.call(Access::kFetchAdd, 0, 0, 1);
  ASSERT_EQ(pair.other.begin(add), State::kPending);
  pair.owner.window->close(/*agreed=*/false);
  EXPECT_EQ(pair.other.test(add), State::kFailed);
}

// An answer to something earlier comes in when the window is closed, and takes back what lets the
// stream go on.
TEST(StagedWindow, EndsWhatALateAnswerHoldsUp) {
  Pair pair;
  const std::vector<std::int64_t> sent(8, 7);
  Gate gate(pair, pair.other.stream);
  WindowCall put = pair.other.call(Access::kPut, 0, 0, sent.size());
  put.from = sent.data();
  ASSERT_EQ(pair.other.begin(put), State::kDone);
  std::thread closing([&] { pair.other.window->close(/*agreed=*/false); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const StagedBoard board(pair.staged, kRanks);
  std::atomic_ref(board.answered(1, put.held_at, 0).count).store(0);
  gate.flag->raise(1);
  closing.join();
  EXPECT_TRUE(pair.other.device->synchronize(pair.other.stream));
}

TEST(StagedWindow, AnswersNothingThatItLeavesOut) {
  Pair pair;
  pair.owner.values[0] = 40;
  // The owner aborts while the request is on its stream.
  WindowCall add = pair.other.call(Access::kFetchAdd, 0, 0, 1);
  add.operand = 1;
  ASSERT_EQ(pair.other.begin(add), State::kPending);
  ASSERT_TRUE(pair.other.device->synchronize(pair.other.stream));
  const auto held = std::make_shared<Flag>();
  const Stream serving = pair.owner.window->serving();
  pair.owner.device->wait_for_flag(*held, 1, serving);
  EXPECT_TRUE(pair.owner.window->serve());
  pair.owner.window->end();
  held->raise(1);
  pause();
  EXPECT_EQ(pair.other.test(add), State::kPending) << "a number that no rank has given: " << add.found;
  EXPECT_EQ(pair.owner.values[0], 40);
}

// The asked rank must not take what lies in the slot from before for what was to be put.
TEST(StagedWindow, AsksNothingOnceItIsAborted) {
  Pair pair;
  const std::vector<std::int64_t> first(8, 7), second(8, 9);
  WindowCall put = pair.other.call(Access::kPut, 0, 0, first.size());
  put.from = first.data();
  ASSERT_EQ(pair.other.begin(put), State::kDone);
  while (!pair.owner.window->serve()) std::this_thread::yield();
  ASSERT_TRUE(pair.other.device->synchronize(pair.other.stream));
  {
    const Gate gate(pair, pair.other.stream);
    put = pair.other.call(Access::kAccumulate, 0, 8, second.size());
    put.from = second.data();
    ASSERT_EQ(pair.other.begin(put), State::kDone);
    pair.other.window->end();
  }
  ASSERT_TRUE(pair.other.device->synchronize(pair.other.stream));
  pair.owner.window->serve();
  pause();
  EXPECT_NE(pair.owner.values[8], 7) << "what was put before has been added elsewhere";
}

// Any access may take a lane whose get is over, whatever its stream waits for meanwhile.
TEST(StagedWindow, LeavesLanesOfGetsToOthers) {
  Pair pair;
  std::vector<std::int64_t> into(8);
  std::vector<std::unique_ptr<Gate>> gates;
  std::vector<Stream> streams;
  for (int each = 0; each < StagedBoard::kLanes; ++each) {
    streams.push_back(pair.other.device->make_stream());
    WindowCall get = pair.other.call(Access::kGet, 0, 0, into.size());
    get.into = into.data();
    get.stream = streams.back();
    ASSERT_EQ(pair.other.begin(get), State::kDone);
    while (!pair.owner.window->serve()) std::this_thread::yield();
    ASSERT_TRUE(pair.other.device->synchronize(streams.back()));
    gates.push_back(std::make_unique<Gate>(pair, streams.back()));
  }
  WindowCall put = pair.other.call(Access::kPut, 0, 0, into.size());
  put.from = into.data();
  ASSERT_EQ(pair.other.begin(put), State::kDone);
  pause();
  EXPECT_TRUE(pair.owner.window->serve()) << "it waits for streams that have nothing to do with it";
}

// What is looked after is so until its stream is past it: an answer that comes late may take back
// what end() has raised.
TEST(StagedWindow, TellsHowFarTheStreamIs) {
  Pair pair;
  const std::vector<std::int64_t> sent(8, 7);
  const Gate gate(pair, pair.other.stream);
  WindowCall put = pair.other.call(Access::kPut, 0, 0, sent.size());
  put.from = sent.data();
  ASSERT_EQ(pair.other.begin(put), State::kDone);
  pair.other.window->end();
  const auto far = pair.other.window->over(0, kSignalSlots + put.held_at);
  EXPECT_NE(far, put.held_until) << "its stream has not come there yet";
}

}  // namespace
}  // namespace altorch
