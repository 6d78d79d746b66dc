// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/channel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <random>
#include <thread>

#include "rendezvous/shared_memory.h"
#include "support/map_store.h"
#include "support/says.h"
#include "transports/channel_conformance.h"
#include "transports/shm/shm_ranks.h"

namespace altorch::shm {
namespace {

using conformance::expect;
using conformance::expect_done;

// `body(channel)` on a thread per rank; what each threw.
template <typename Body>
std::vector<std::string> with_mail(int size, std::size_t ring_bytes, Body body, bool may_copy = true) {
  MapStore store;
  const std::vector<Process> processes = processes_of(size, may_copy);
  return on_threads(size, [&](int rank) {
    auto memory =
        share_memory(store, "mail", rank, size, Mail::bytes(size, ring_bytes), std::chrono::seconds(30));
    Mail mail(memory.get(), rank, size, ring_bytes);
    ShmChannel channel(memory, std::move(mail), processes);
    body(channel);
  });
}

TEST(ShmChannel, Conforms) {
  for (const int size : {1, 2, 3, 5}) {
    for (const std::size_t ring : {std::size_t{1} << 10, std::size_t{1} << 16}) {
      // A ring of 1 KiB has wrapped around 300 times by then; each time costs ranks that share a
      // core a switch.
      const std::size_t largest = ring > 1024 ? 5'000'000 : 400'000;
      for (const bool may_copy : ways_to_copy()) {
        const auto errors = with_mail(
            size, ring, [&](Channel& channel) { conformance::channel_conforms(channel, largest); }, may_copy);
        EXPECT_EQ(errors, all_good(size)) << "copies: " << may_copy;
      }
    }
  }
}

TEST(ShmChannel, TellsTypesApart) {
  for (const std::size_t ring : {std::size_t{1} << 10, std::size_t{1} << 16}) {
    for (const bool may_copy : ways_to_copy()) {
      const auto errors = with_mail(
          2, ring, [](Channel& channel) { conformance::types_are_told_apart(channel); }, may_copy);
      EXPECT_EQ(errors, all_good(2)) << "copies: " << may_copy;
    }
  }
}

TEST(ShmMail, FitsItsLimit) {
  for (const int size : {2, 8, 32}) {
    const std::size_t ring = Mail::ring_bytes(size, 4 << 20);
    EXPECT_LE(static_cast<std::size_t>(size * size) * ring, std::size_t{4} << 20);
    EXPECT_EQ(ring % 64, 0u);
  }
  EXPECT_GE(Mail::ring_bytes(256, 4 << 20), std::size_t{1} << 10);
}

// More than a ring and a table hold, of any size, in both directions at once; received in another
// order than sent.
TEST(ShmChannel, CarriesMoreThanItsRingHolds) {
  constexpr int kMessages = 500;
  const auto exchange = [](Channel& channel) {
    const int peer = 1 - channel.rank();
    const auto bytes_of = [](int i) { return static_cast<std::size_t>(i * 37 % 1500); };
    const auto byte_of = [](int from, int i) { return static_cast<unsigned char>(from * 100 + i); };
    std::vector<std::vector<unsigned char>> out(kMessages), in(kMessages);
    std::vector<Request> requests(2 * kMessages);
    for (int i = 0; i < kMessages; ++i) {
      const auto at = static_cast<std::size_t>(i);
      out[at].assign(bytes_of(i), byte_of(channel.rank(), i));
      channel.send(out[at].data(), out[at].size(), peer, i % 7, requests[at]);
    }
    for (int tag = 6; tag >= 0; --tag) {
      for (int i = tag; i < kMessages; i += 7) {
        const auto at = static_cast<std::size_t>(i);
        in[at].resize(bytes_of(i));
        channel.receive(in[at].data(), in[at].size(), peer, tag, requests[kMessages + at]);
      }
    }
    expect_done(channel, requests, "messages");
    for (int i = 0; i < kMessages; ++i) {
      const auto at = static_cast<std::size_t>(i);
      expect(in[at] == std::vector<unsigned char>(bytes_of(i), byte_of(peer, i)), "a message is wrong");
    }
  };
  for (const bool may_copy : ways_to_copy())
    EXPECT_EQ(with_mail(2, 1 << 10, exchange, may_copy), all_good(2)) << "copies: " << may_copy;
}

// Room in the ring, a message, and that it was copied: all of it ends a sleep. Only one sleep is
// timed: on a busy machine the many parts of the large messages may take a minute.
TEST(ShmChannel, MissesNoNewsInItsSleep) {
  const auto exchange = [](Channel& channel) {
    constexpr std::chrono::seconds kMost(30);
    const int peer = 1 - channel.rank();
    for (int turn = 0; turn < 1'000; ++turn) {
      const std::size_t bytes = turn % 400 == 0 ? 9 << 20 : turn % 3 == 0 ? 8 : turn % 3 == 1 ? 500 : 5'000;
      std::vector<unsigned char> out(bytes, static_cast<unsigned char>(turn)), in(bytes);
      std::array<Request, 2> requests;
      channel.send(out.data(), bytes, peer, 1, requests[0]);
      channel.receive(in.data(), bytes, peer, 1, requests[1]);
      std::optional<Error> error;
      while (true) {
        const WaitTarget target = channel.wait_target();
        if (channel.test(requests, error) != State::kPending) break;
        const auto began = std::chrono::steady_clock::now();
        target.sleep(kMost);
        expect(std::chrono::steady_clock::now() - began < kMost, "a sleep was not ended");
      }
      expect(!error && in == out, "a message is wrong");
    }
  };
  for (const bool may_copy : ways_to_copy())
    EXPECT_EQ(with_mail(2, 1 << 10, exchange, may_copy), all_good(2)) << "copies: " << may_copy;
}

// The receive is posted before, or when a part of the message is there already.
TEST(ShmChannel, SaysThatTheRestOfAMessageWillNotCome) {
  for (const bool early : {false, true}) {
    std::atomic<int> stage = 0;
    const auto until = [&](int reached) {
      while (stage < reached) std::this_thread::yield();
    };
    const auto errors = with_mail(
        2, 1 << 12,
        [&](Channel& channel) {
          std::vector<int> large(100'000, channel.rank());
          Request request, small;
          int word = 5 + channel.rank();
          std::optional<Error> error;
          if (channel.rank() == 0) {
            channel.send(large.data(), large.size() * sizeof(int), 1, 3, request);
            stage = 1;
            until(2);
            expect(channel.cancel({&request, 1}), "a sender's buffer is its own");
            channel.send(&word, sizeof word, 1, 3, small);
            expect_done(channel, {&small, 1}, "the message after");
          } else {
            until(1);
            const auto receive = [&] {
              channel.receive(large.data(), large.size() * sizeof(int), 0, 3, request);
            };
            if (!early) receive();
            channel.test({&small, 1}, error);  // takes what is there
            if (early) receive();
            stage = 2;
            error = conformance::finish(channel, {&request, 1});
            expect(error && says(error->what(), "aborted its message half-way"), "nothing was said");
            channel.receive(&word, sizeof word, 0, 3, small);
            expect_done(channel, {&small, 1}, "the message after");
            expect(word == 5, "the message after is wrong");
          }
        },
        /*may_copy=*/false);
    EXPECT_EQ(errors, all_good(2)) << early;
  }
}

TEST(ShmChannel, ForgetsAMessageThatWasWithdrawn) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  const auto exchange = [](Channel& channel) {
    std::vector<int> large(100'000, 1);
    Request request;
    int word = 7;
    if (channel.rank() == 0) {
      channel.send(large.data(), large.size() * sizeof(int), 1, 3, request);
      expect(channel.cancel({&request, 1}), "a sender's buffer is its own");
      large.assign(large.size(), 2);
      channel.send(large.data(), large.size() * sizeof(int), 1, 3, request);
      expect_done(channel, {&request, 1}, "the second message");
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      channel.receive(large.data(), large.size() * sizeof(int), 0, 3, request);
      expect_done(channel, {&request, 1}, "the second message");
      expect(large == std::vector<int>(large.size(), 2), "what was withdrawn has arrived");
      channel.receive(&word, sizeof word, 0, 4, request);
      expect(channel.cancel({&request, 1}), "no peer writes to a receiver's buffer");
    }
  };
  EXPECT_EQ(with_mail(2, 1 << 12, exchange), all_good(2));
}

// However many wait for a peer that is busy elsewhere.
TEST(ShmChannel, MessagesToOnePeerDoNotWaitForAnother) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  constexpr std::size_t kMany = Mail::kPlaces + 10;
  std::atomic<bool> heard = false;
  const auto errors = with_mail(3, 1 << 16, [&](Channel& channel) {
    std::vector<int> large(10'000, channel.rank());
    std::vector<Request> requests(channel.rank() == 2 ? 1 : kMany);
    if (channel.rank() == 0) {
      for (Request& request : requests) channel.send(large.data(), large.size() * sizeof(int), 1, 1, request);
      Request other;
      channel.send(large.data(), large.size() * sizeof(int), 2, 1, other);
      expect_done(channel, {&other, 1}, "the message to rank 2");
      expect_done(channel, requests, "the messages to rank 1");
    } else if (channel.rank() == 1) {
      while (!heard) std::this_thread::yield();
      for (Request& request : requests) {
        large.assign(large.size(), 7);
        channel.receive(large.data(), large.size() * sizeof(int), 0, 1, request);
        expect_done(channel, {&request, 1}, "a message");
        expect(large == std::vector<int>(large.size(), 0), "a message is wrong");
      }
    } else {
      channel.receive(large.data(), large.size() * sizeof(int), 0, 1, requests[0]);
      expect_done(channel, requests, "rank 2's message");
      heard = true;
    }
  });
  EXPECT_EQ(errors, all_good(3));
}

// Both have come before their receive.
TEST(ShmChannel, FindsTheMessageAfterOneThatWasWithdrawn) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  std::atomic<int> stage = 0;
  const auto errors = with_mail(2, 1 << 12, [&](Channel& channel) {
    std::vector<int> large(100'000, 1), second(100'000, 2);
    Request request, other;
    std::optional<Error> error;
    if (channel.rank() == 0) {
      channel.send(large.data(), large.size() * sizeof(int), 1, 3, request);
      channel.send(second.data(), second.size() * sizeof(int), 1, 3, other);
      stage = 1;
      while (stage < 2) std::this_thread::yield();
      channel.cancel({&request, 1});
      stage = 3;
      expect_done(channel, {&other, 1}, "the second message");
    } else {
      while (stage < 1) std::this_thread::yield();
      channel.test({}, error);
      stage = 2;
      while (stage < 3) std::this_thread::yield();
      channel.receive(large.data(), large.size() * sizeof(int), 0, 3, request);
      expect_done(channel, {&request, 1}, "the second message");
      expect(large == second, "what was withdrawn has arrived");
    }
  });
  EXPECT_EQ(errors, all_good(2));
}

// What is aborted together takes no longer for each than one alone: by the hundred thousand, from
// either end.
TEST(ShmChannel, AbortsManyAtOnce) {
  constexpr std::size_t kMany = 100'000;
  const auto errors = with_mail(2, 1 << 10, [&](Channel& channel) {
    if (channel.rank() != 0) return;
    std::vector<std::array<Request, 2>> requests(kMany);
    std::array<int, 2> data{};
    for (auto& [receive, send] : requests) {
      channel.receive(&data[0], sizeof data[0], 1, 3, receive);
      channel.send(&data[1], sizeof data[1], 1, 4, send);
    }
    const auto began = std::chrono::steady_clock::now();
    for (std::size_t each = 0; each < kMany; ++each)
      channel.cancel(requests[each % 2 ? each / 2 : kMany - 1 - each / 2]);
    expect(std::chrono::steady_clock::now() - began < std::chrono::seconds(5), "it takes ever longer");
  });
  EXPECT_EQ(errors, all_good(2));
}

TEST(ShmChannel, SaysThatASendersMemoryIsGone) {
  MapStore store;
  auto memory = share_memory(store, "mail", 0, 1, Mail::bytes(2, 4096), std::chrono::seconds(5));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Fields fields = Process::own().fields();
    const std::string text = encode_fields(fields);
    ShmChannel channel(memory, Mail(memory.get(), 1, 2, 4096), {Process::own(), Process::own()});
    static char large[100'000];
    Request request;
    channel.send(large, sizeof large, 0, 1, request);
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  char text[512];
  const ssize_t length = read(ends[0], text, sizeof text);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  ASSERT_GT(length, 0);
  const Process gone = Process::from(decode_fields(std::string(text, static_cast<std::size_t>(length))));
  EXPECT_TRUE(gone.unsupported_reason());
  ShmChannel channel(memory, Mail(memory.get(), 0, 2, 4096), {Process::own(), gone});
  std::vector<char> room(100'000);
  Request request;
  channel.receive(room.data(), room.size(), 1, 1, request);
  const auto error = conformance::finish(channel, {&request, 1});
  ASSERT_TRUE(error);
  EXPECT_TRUE(says(error->what(), "rank 1")) << error->what();
  close(ends[0]);
  close(ends[1]);
}

TEST(ShmSingleCopy, KnowsAProcessThatIsAnotherOne) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  EXPECT_FALSE(Process::own().unsupported_reason());
  Process other = Process::own();
  other.number += 1;
  EXPECT_TRUE(says(other.unsupported_reason().value_or(""), "another one"));
  other.address = 1;
  EXPECT_TRUE(says(other.unsupported_reason().value_or(""), "process_vm_readv"));
}

// What rank 0 writes into its ring comes to rank 1 as an error, and nowhere else.
TEST(ShmChannel, RefusesFramesThatAreNone) {
  constexpr std::size_t kRing = 1 << 10;
  const std::vector<Frame> wrong = {
      {.bytes = 800, .part = 0},                     // a part of nothing
      {.bytes = 600, .offer = 1},                    // memory that no rank may read
      {.bytes = 16, .part = 64},                     // more than the message has
      {.bytes = 64, .part = 64, .place = 1u << 20},  // no place of the table
  };
  for (const Frame& frame : wrong) {
    const auto memory = plain_memory(Mail::bytes(2, kRing));
    Mail peer(memory.get(), 0, 2, kRing);
    ShmChannel channel(memory, Mail(memory.get(), 1, 2, kRing), {});
    const std::array<std::byte, 1024> data{};
    ASSERT_TRUE(peer.put(1, frame, data.data()));
    std::optional<Error> error;
    EXPECT_THROW(channel.test({}, error), Error) << frame.bytes;
  }
}

TEST(ShmChannel, RefusesPartsThatGrow) {
  constexpr std::size_t kRing = 1 << 10;
  const auto memory = plain_memory(Mail::bytes(2, kRing));
  Mail peer(memory.get(), 0, 2, kRing);
  ShmChannel channel(memory, Mail(memory.get(), 1, 2, kRing), {});
  const std::array<std::byte, 448> data{};
  std::optional<Error> error;
  ASSERT_TRUE(peer.put(1, {.bytes = 500, .part = 448}, data.data()));
  channel.test({}, error);
  ASSERT_TRUE(peer.put(1, {.bytes = 5000, .part = 448}, data.data()));
  EXPECT_THROW(channel.test({}, error), Error);
}

}  // namespace
}  // namespace altorch::shm
