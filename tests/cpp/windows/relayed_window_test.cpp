// SPDX-License-Identifier: BSD-3-Clause
// What a window by messages believes of what its peers send.
#include "windows/relayed_window.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "runtime/thread_group.h"
#include "support/fake_device.h"

namespace altorch {
namespace {

using Message = RelayedWindow::Message;

constexpr int kRelayRanks = 2;
constexpr std::size_t kBytes = 64;
constexpr std::int64_t kMessageTags = 100;

struct RelayedRank {
  std::vector<std::byte> values = std::vector<std::byte>(kBytes);
  PinnedMemory staged;
  std::unique_ptr<RelayedWindow> window;

  RelayedRank(Channel& channel, int rank) {
    FakeDeviceOptions options{.longest_delay = std::chrono::microseconds(0), .aborts = true};
    DeviceWindow::Memory memory;
    memory.device = std::make_unique<FakeDevice>(options);
    options.beside = true;
    memory.serving = std::make_unique<FakeDevice>(options);
    memory.of.resize(kRelayRanks);
    memory.of[static_cast<std::size_t>(rank)] = DeviceMemory(DeviceMemory(), values.data());
    memory.board = memory.device->pin(DeviceWindow::board_bytes(kRelayRanks));
    memory.is_relayed = true;
    memory.staged = staged = memory.device->pin(StagedBoard::bytes(kRelayRanks, rank));
    memory.counts = memory.device->allocate(DeviceWindow::count_bytes(kRelayRanks));
    memory.told = memory.device->pin(DeviceWindow::told_bytes(kRelayRanks));
    window = std::make_unique<RelayedWindow>(std::move(memory), rank, Registered{kBytes, DType::kUInt8},
                                             OnError::kPoison, channel, kMessageTags);
  }
};

Message put_of(std::uint64_t bytes) {
  Message message{.kind = Message::kRequest, .place = 0, .number = 1, .request = {}};
  message.request.asked.access = static_cast<std::uint8_t>(Access::kPut);
  message.request.asked.dtype = static_cast<std::uint8_t>(DType::kUInt8);
  message.request.asked.row_bytes = message.request.asked.stride = bytes;
  message.request.asked.rows = 1;
  message.request.number = 1;
  return message;
}

// Has rank 1 send these messages, with `data` behind the last one, to the window of rank 0. Returns
// what rank 0 has in the end: whether it was asked to do something, and what it got.
struct Received {
  bool asked = false, left = false;
  std::vector<std::byte> values;
};
Received after(const std::vector<Message>& messages, const std::vector<std::byte>& data = {}) {
  Received received;
  ThreadGroup group(kRelayRanks);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    Channel& channel = communicator.links().channel();
    if (rank == 1) {
      std::vector<Request> requests(messages.size() + 1);
      for (std::size_t each = 0; each < messages.size(); ++each)
        channel.send(&messages[each], sizeof(Message), 0, kMessageTags, requests[each]);
      if (!data.empty()) channel.send(data.data(), data.size(), 0, kMessageTags + 1, requests.back());
      std::optional<Error> error;
      while (channel.test(requests, error) == State::kPending) std::this_thread::yield();
      return;
    }
    RelayedRank own(channel, rank);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < until) own.window->serve();
    const StagedBoard board(own.staged, kRelayRanks, rank);
    received = {board.asked(1, 0, 0).reached(1), own.window->has_left(1), own.values};
    own.window->close(/*agreed=*/true);
  });
  EXPECT_EQ(errors, std::vector<std::string>(kRelayRanks));
  return received;
}

TEST(RelayedWindow, CarriesOutWhatIsAsked) {
  const std::vector<std::byte> data(8, std::byte{7});
  const Received received = after({put_of(data.size())}, data);
  EXPECT_TRUE(received.asked);
  EXPECT_EQ(received.values[7], std::byte{7});
  EXPECT_EQ(received.values[8], std::byte{0});
}

TEST(RelayedWindow, ReceivesNothingThatNoSlotHolds) {
  EXPECT_FALSE(after({put_of(StagedBoard::kSlotBytes + 1)}).asked);
  Message message = put_of(8);
  message.request.slot = StagedBoard::kSlots;
  EXPECT_FALSE(after({message}).asked);
  message = put_of(8);
  message.request.asked.rows = std::uint64_t{1} << 62;
  EXPECT_FALSE(after({message}).asked);
}

// What lies outside of the window is told to no device, as by every row (StagedAccess).
TEST(RelayedWindow, WritesNothingOutsideOfIt) {
  const std::vector<std::byte> data(kBytes, std::byte{7});
  Message message = put_of(data.size());
  message.request.asked.offset = 8;
  for (const std::byte each : after({message}, data).values) EXPECT_EQ(each, std::byte{0});
}

// As where the peer is lost between a message and its data: what lies in the slot is not taken for
// them.
TEST(RelayedWindow, CarriesOutNothingWhoseDataFail) {
  const Received received = after({put_of(8)}, std::vector<std::byte>(9, std::byte{7}));
  EXPECT_FALSE(received.asked);
  EXPECT_FALSE(received.left);
}

TEST(RelayedWindow, TakesNoMessageOutOfItsOrder) {
  Message message = put_of(0);
  message.number = 2;
  EXPECT_FALSE(after({message}).asked);
  message = put_of(0);
  message.place = StagedBoard::kLanes;
  EXPECT_FALSE(after({message}).asked);
  message = put_of(0);
  message.kind = 9;
  EXPECT_FALSE(after({message}).asked);
}

// An answer to nothing, a signal in no slot: nothing that comes behind is believed.
TEST(RelayedWindow, BelievesNothingBehindWhatMakesNoSense) {
  for (const Message& senseless : {Message{.kind = Message::kAnswer, .place = 0, .number = 1, .request = {}},
                                   Message{.kind = Message::kSignal, .place = 8, .number = 1, .request = {}}})
    EXPECT_FALSE(after({senseless, put_of(0)}).asked);
}

TEST(RelayedWindow, NoticesThatAPeerLeaves) { EXPECT_TRUE(after({Message{}}).left); }

}  // namespace
}  // namespace altorch
