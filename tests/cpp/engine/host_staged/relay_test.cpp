#include "engine/host_staged/relay.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/thread_group.h"
#include "support/fake_device.h"

namespace altorch {
namespace {

constexpr RelayOptions kSmall{
    .pinned_bytes = 8 * (64 << 10), .slots = 4, .timeout = std::chrono::seconds(20)};
constexpr std::int64_t kPieceOfFloats = (64 << 10) / 4;

// One rank: a device with a stream, and a relay on it.
struct Rank {
  Rank(int number, std::shared_ptr<Communicator> carrier, RelayOptions options,
       FakeDeviceOptions device_options)
      : rank(number), size(carrier->size()) {
    auto made = std::make_unique<FakeDevice>(device_options);
    device = made.get();
    stream = device->make_stream();
    relay = std::make_unique<Relay>(std::move(made), std::move(carrier), options);
  }
  void enqueue(const Operation& operation) { relay->enqueue({&operation, 1}, stream); }
  void finish() const { ASSERT_TRUE(device->synchronize(stream)); }

  int rank, size;
  FakeDevice* device;
  Stream stream;
  std::unique_ptr<Relay> relay;
};

// Runs `body` as every rank of a group, and expects no error.
void on_ranks(int size, const std::function<void(Rank&)>& body, RelayOptions options = kSmall,
              std::vector<std::size_t> pinned_limits = {}) {
  ThreadGroup carriers(size);
  const auto errors = carriers.run([&](int number, Communicator& carrier) {
    FakeDeviceOptions device{.seed = static_cast<unsigned>(number + 1)};
    if (!pinned_limits.empty()) device.pinned_limit = pinned_limits[static_cast<std::size_t>(number)];
    Rank rank(number, carrier.shared_from_this(), options, device);
    body(rank);
    rank.finish();
    const auto failure = rank.relay->failure();
    EXPECT_FALSE(failure) << failure->what();
  });
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(size)));
}

std::vector<float> numbers(std::int64_t count, int rank, unsigned seed = 0) {
  std::minstd_rand random(1 + seed * 100 + static_cast<unsigned>(rank));
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 2048);  // sums are exact
  return values;
}

Operation operation_of(OpKind kind, const void* input, void* output, std::int64_t count, int root = 0) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kFloat32;
  operation.input = input;
  operation.output = output;
  operation.count = count;
  operation.root = root;
  operation.device = 0;
  operation.timeout = std::chrono::seconds(20);
  return operation;
}

std::vector<float> sum(std::int64_t count, int size, unsigned seed = 0) {
  std::vector<float> total(static_cast<std::size_t>(count));
  for (int rank = 0; rank < size; ++rank) {
    const auto part = numbers(count, rank, seed);
    for (std::size_t i = 0; i < part.size(); ++i) total[i] += part[i];
  }
  return total;
}

std::vector<float> slice(const std::vector<float>& values, std::int64_t begin, std::int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

TEST(Relay, ReducesAndBroadcastsVectorsOfAnySize) {
  for (const int size : {1, 2, 3, 5}) {
    on_ranks(size, [&](Rank& me) {
      for (const std::int64_t count :
           {std::int64_t{0}, std::int64_t{1}, kPieceOfFloats, 3 * kPieceOfFloats + 7}) {
        auto x = numbers(count, me.rank);
        me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), count));
        auto y = numbers(count, me.rank, 1);
        const int root = size - 1;
        me.enqueue(operation_of(OpKind::kReduce, y.data(), y.data(), count, root));
        auto z = numbers(count, me.rank, 2);
        me.enqueue(operation_of(OpKind::kBroadcast, nullptr, z.data(), count, root));
        me.finish();
        EXPECT_EQ(x, sum(count, size)) << count;
        EXPECT_EQ(y, me.rank == root ? sum(count, size, 1) : numbers(count, me.rank, 1)) << count;
        EXPECT_EQ(z, numbers(count, root, 2)) << count;
      }
    });
  }
}

TEST(Relay, GathersAndScattersBlocksEvenAndUneven) {
  for (const int size : {1, 2, 3, 4}) {
    on_ranks(size, [&](Rank& me) {
      for (const std::int64_t base : {std::int64_t{0}, std::int64_t{3}, kPieceOfFloats}) {
        for (const bool even : {true, false}) {
          std::vector<std::int64_t> counts;
          for (int r = 0; r < size; ++r) counts.push_back(even ? base : base * (r % 3) + r);
          std::int64_t total = 0, begin = 0;
          for (int r = 0; r < size; ++r) {
            if (r == me.rank) begin = total;
            total += counts[static_cast<std::size_t>(r)];
          }
          const std::int64_t own = counts[static_cast<std::size_t>(me.rank)];
          const auto mine = numbers(own, me.rank);
          std::vector<float> all(static_cast<std::size_t>(total), -1);
          auto gather = operation_of(OpKind::kAllGather, mine.data(), all.data(), own);
          if (!even) gather.output_counts = counts;
          me.enqueue(gather);
          const auto parts = numbers(total, me.rank, 1);
          std::vector<float> reduced(static_cast<std::size_t>(own), -1);
          auto scatter = operation_of(OpKind::kReduceScatter, parts.data(), reduced.data(), own);
          if (!even) scatter.input_counts = counts;
          me.enqueue(scatter);
          me.finish();
          std::vector<float> want;
          for (int r = 0; r < size; ++r) {
            const auto part = numbers(counts[static_cast<std::size_t>(r)], r);
            want.insert(want.end(), part.begin(), part.end());
          }
          EXPECT_EQ(all, want);
          EXPECT_EQ(reduced, slice(sum(total, size, 1), begin, own));
        }
      }
    });
  }
}

// How many elements rank `from` has for rank `to`.
std::int64_t share(int from, int to, std::int64_t base) { return base * ((from + 2 * to) % 3) + from; }

TEST(Relay, ExchangesUnevenBlocksLargerThanItsMemory) {
  for (const int size : {1, 2, 3, 5}) {
    on_ranks(size, [&](Rank& me) {
      for (const std::int64_t base : {std::int64_t{0}, std::int64_t{5}, 5 * kPieceOfFloats + 1}) {
        std::vector<std::int64_t> out, in;
        std::int64_t sent = 0, taken = 0;
        std::vector<float> want;
        for (int r = 0; r < size; ++r) {
          out.push_back(share(me.rank, r, base));
          in.push_back(share(r, me.rank, base));
          sent += out.back();
          taken += in.back();
        }
        for (int r = 0; r < size; ++r) {
          std::int64_t begin = 0, total = 0;
          for (int to = 0; to < size; ++to) total += share(r, to, base);
          for (int to = 0; to < me.rank; ++to) begin += share(r, to, base);
          const auto part = slice(numbers(total, r), begin, share(r, me.rank, base));
          want.insert(want.end(), part.begin(), part.end());
        }
        const auto from = numbers(sent, me.rank);
        std::vector<float> to(static_cast<std::size_t>(taken), -1);
        auto exchange = operation_of(OpKind::kAllToAll, from.data(), to.data(), 0);
        exchange.input_counts = out;
        exchange.output_counts = in;
        me.enqueue(exchange);
        me.finish();
        EXPECT_EQ(to, want) << base;
      }
    });
  }
}

TEST(Relay, GathersAtAndScattersFromARoot) {
  for (const int size : {1, 2, 4}) {
    on_ranks(size, [&](Rank& me) {
      for (const std::int64_t count : {std::int64_t{0}, std::int64_t{9}, 2 * kPieceOfFloats + 3}) {
        const int root = size / 2;
        const bool at_root = me.rank == root;
        const auto mine = numbers(count, me.rank);
        std::vector<float> all(at_root ? static_cast<std::size_t>(count * size) : 0, -1);
        me.enqueue(operation_of(OpKind::kGather, mine.data(), all.data(), count, root));
        const auto parts = at_root ? numbers(count * size, root, 1) : std::vector<float>();
        std::vector<float> part(static_cast<std::size_t>(count), -1);
        me.enqueue(operation_of(OpKind::kScatter, parts.data(), part.data(), count, root));
        me.finish();
        EXPECT_EQ(part, slice(numbers(count * size, root, 1), count * me.rank, count));
        for (int r = 0; at_root && r < size; ++r)
          EXPECT_EQ(slice(all, count * r, count), numbers(count, r)) << r;
      }
    });
  }
}

TEST(Relay, CarriesMessagesOfOneWindowInAnyOrder) {
  constexpr int kSize = 3;
  on_ranks(kSize, [&](Rank& me) {
    // Everybody sends to everybody first and receives afterwards, twice over, far more than the slots hold.
    const std::int64_t count = 6 * kPieceOfFloats;
    std::vector<std::vector<float>> sent, taken;
    std::vector<Operation> window;
    sent.reserve(8);
    taken.reserve(8);
    for (unsigned round = 0; round < 2; ++round) {
      for (int peer = 0; peer < kSize; ++peer) {
        if (peer == me.rank) continue;
        sent.push_back(numbers(count, me.rank, round * 10 + static_cast<unsigned>(peer)));
        window.push_back(operation_of(OpKind::kSend, sent.back().data(), nullptr, count, peer));
      }
    }
    for (unsigned round = 0; round < 2; ++round) {
      for (int peer = kSize - 1; peer >= 0; --peer) {
        if (peer == me.rank) continue;
        taken.emplace_back(static_cast<std::size_t>(count), -1.0f);
        window.push_back(operation_of(OpKind::kReceive, nullptr, taken.back().data(), count, peer));
      }
    }
    me.relay->enqueue(window, me.stream);
    me.finish();
    std::size_t i = 0;
    for (unsigned round = 0; round < 2; ++round) {
      for (int peer = kSize - 1; peer >= 0; --peer) {
        if (peer == me.rank) continue;
        EXPECT_EQ(taken[i++], numbers(count, peer, round * 10 + static_cast<unsigned>(me.rank)));
      }
    }
  });
}

TEST(Relay, BehavesLikeAKernelInItsStream) {
  on_ranks(2, [&](Rank& me) {
    for (const std::int64_t count : {std::int64_t{33}, 9 * kPieceOfFloats}) {
      std::vector<float> x(static_cast<std::size_t>(count), -1e9f), copy;
      for (int round = 0; round < 5; ++round) {
        // What comes before and what comes after run late: neither may be overtaken.
        me.device->launch(
            [&x, &me, round, count] {
              std::this_thread::sleep_for(std::chrono::milliseconds(3));
              const auto late = numbers(count, me.rank, static_cast<unsigned>(round));
              std::copy(late.begin(), late.end(), x.begin());
            },
            me.stream);
        me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), count));
        me.device->launch([&] { copy = x; }, me.stream);
        me.device->launch([&x] { std::fill(x.begin(), x.end(), -1e9f); }, me.stream);
        me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), count));
        me.finish();
        EXPECT_EQ(copy, sum(count, 2, static_cast<unsigned>(round)));
        EXPECT_EQ(x[0], -2e9f);
      }
    }
  });
}

TEST(Relay, TakesNoMorePinnedMemoryThanItMay) {
  // One rank gets a quarter only: all cut their messages alike.
  const std::size_t quarter = 2 * 4 * ((256 << 10) + 3 * sizeof(Flag));
  on_ranks(2,
           [&](Rank& me) {
             const std::int64_t count = 1 << 20;
             auto x = numbers(count, me.rank);
             me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), count));
             std::vector<float> all(static_cast<std::size_t>(2 * count));
             const auto mine = numbers(count, me.rank);
             me.enqueue(operation_of(OpKind::kAllGather, mine.data(), all.data(), count));
             me.finish();
             EXPECT_EQ(x, sum(count, 2));
             EXPECT_EQ(slice(all, count, count), numbers(count, 1));
             EXPECT_LE(me.device->pinned_bytes(), me.rank == 0 ? (8u << 20) + 4096 : quarter);
           },
           {.pinned_bytes = 8 << 20, .slots = 4, .timeout = std::chrono::seconds(20)},
           {std::size_t{1} << 40, quarter});
}

TEST(Relay, LetsStreamsGoOnWhenAnotherRankNeverComes) {
  ThreadGroup carriers(2);
  const auto errors = carriers.run([&](int number, Communicator& carrier) {
    Rank me(number, carrier.shared_from_this(), kSmall, {});
    if (number == 1) return;
    std::vector<float> x(100 * kPieceOfFloats), y(5);
    me.enqueue(operation_of(OpKind::kReceive, nullptr, y.data(), 5, 1));
    me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), 100 * kPieceOfFloats));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(me.relay->failure());
    me.relay->abort("given up by the test");
    me.finish();
    ASSERT_TRUE(me.relay->failure());
    EXPECT_NE(std::string(me.relay->failure()->what()).find("given up by the test"), std::string::npos);
    EXPECT_THROW(me.enqueue(operation_of(OpKind::kAllReduce, y.data(), y.data(), 5)), Error);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(Relay, ReportsThatTheRanksDisagree) {
  ThreadGroup carriers(2);
  const auto errors = carriers.run([&](int number, Communicator& carrier) {
    Rank me(number, carrier.shared_from_this(), kSmall, {.seed = 7});
    std::vector<float> x(100, 1.0f);
    me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), number == 0 ? 100 : 50));
    me.finish();
    ASSERT_TRUE(me.relay->failure());
    EXPECT_EQ(me.relay->failure()->kind(), ErrorKind::kMismatch);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

}  // namespace
}  // namespace altorch
