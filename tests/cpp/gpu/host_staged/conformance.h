// SPDX-License-Identifier: BSD-3-Clause
// Device memory that goes through the host, on a fake device: what holds for every host-staged
// route, and is run over each by its own test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "gpu/gpu_route.h"
#include "reduction/reduce.h"
#include "runtime/thread_group.h"
#include "support/fake_device.h"

namespace altorch::staged {

// The pieces of the routes under test: small, so that messages take many.
constexpr std::size_t kPiece = 64 << 10;
constexpr std::int64_t kPieceOfFloats = kPiece / 4;

// One rank: a route on a device, and the caller's stream.
struct Rank {
  int rank, size;
  FakeDevice* device;
  std::unique_ptr<GpuRoute> route;
  Stream stream;

  void enqueue(const Operation& operation) const { route->enqueue({&operation, 1}, stream); }
  void finish() const { ASSERT_TRUE(device->synchronize(stream)); }
};

// Makes the route of one rank of a group. Called on a thread per rank.
using MakeRoute = std::function<std::unique_ptr<GpuRoute>(std::unique_ptr<Device>, Communicator&)>;

// Memory that the ranks of a group share, zero at first: several pieces, by name. They are threads,
// and one mapping serves all: the thread sanitizer knows memory by its address.
inline std::shared_ptr<std::byte> memory_of(Communicator& group, std::size_t bytes, int name = 0) {
  static std::mutex mutex;
  static std::map<std::pair<const KeyValueStore*, int>, std::weak_ptr<std::byte>> memories;
  const std::lock_guard lock(mutex);
  std::weak_ptr<std::byte>& known = memories[{&group.store(), name}];
  if (auto found = known.lock()) return found;
  auto* fresh = static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  std::memset(fresh, 0, bytes);
  std::shared_ptr<std::byte> made(fresh, [](std::byte* memory) { std::free(memory); });
  known = made;
  return made;
}

inline Rank make_rank(const MakeRoute& make, Communicator& group, FakeDeviceOptions options) {
  auto device = std::make_unique<FakeDevice>(options);
  FakeDevice* kept = device.get();
  const Stream stream = device->make_stream();
  return {group.rank(), group.size(), kept, make(std::move(device), group), stream};
}

// Runs `body` as every rank of a group, and expects no error.
inline void on_ranks(const MakeRoute& make, int size, const std::function<void(Rank&)>& body) {
  ThreadGroup groups(size);
  const auto errors = groups.run([&](int number, Communicator& group) {
    Rank rank = make_rank(make, group, {.seed = static_cast<unsigned>(number + 1)});
    body(rank);
    rank.finish();
    const auto failure = rank.route->failure();
    EXPECT_FALSE(failure) << failure->what();
  });
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(size)));
}

inline std::vector<float> numbers(std::int64_t count, int rank, unsigned seed = 0) {
  std::minstd_rand random(1 + seed * 100 + static_cast<unsigned>(rank));
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 2048);  // sums are exact
  return values;
}

inline Operation operation_of(OpKind kind, const void* input, void* output, std::int64_t count,
                              int root = 0) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kFloat32;
  operation.input = input;
  operation.output = output;
  operation.count = count;
  operation.root = root;
  operation.device = 0;
  operation.timeout = std::chrono::seconds(100);  // the sanitizers are slow on a busy machine
  return operation;
}

inline std::vector<float> sum(std::int64_t count, int size, unsigned seed = 0) {
  std::vector<float> total(static_cast<std::size_t>(count));
  for (int rank = 0; rank < size; ++rank) {
    const auto part = numbers(count, rank, seed);
    for (std::size_t i = 0; i < part.size(); ++i) total[i] += part[i];
  }
  return total;
}

inline std::vector<float> slice(const std::vector<float>& values, std::int64_t begin, std::int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

inline void vectors_of_any_size(const MakeRoute& make) {
  for (const int size : {1, 2, 3, 8}) {
    on_ranks(make, size, [&](Rank& me) {
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

inline void blocks_even_and_uneven(const MakeRoute& make) {
  for (const int size : {1, 2, 3, 4}) {
    on_ranks(make, size, [&](Rank& me) {
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
inline std::int64_t share(int from, int to, std::int64_t base) { return base * ((from + 2 * to) % 3) + from; }

inline void exchanges_larger_than_its_memory(const MakeRoute& make) {
  for (const int size : {1, 2, 3, 8}) {
    on_ranks(make, size, [&](Rank& me) {
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

inline void gathers_and_scatters_at_a_root(const MakeRoute& make) {
  for (const int size : {1, 2, 4}) {
    on_ranks(make, size, [&](Rank& me) {
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

inline void windows_in_any_order(const MakeRoute& make) {
  constexpr int kSize = 3;
  on_ranks(make, kSize, [&](Rank& me) {
    // Each rank first sends to all peers and then receives, twice over: far more than the slots
    // hold.
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
    me.route->enqueue(window, me.stream);
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

inline void behaves_like_a_kernel(const MakeRoute& make) {
  on_ranks(make, 2, [&](Rank& me) {
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

inline void types_and_operators(const MakeRoute& make) {
  for (const int size : {1, 2, 3}) {
    on_ranks(make, size, [&](Rank& me) {
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{201}, kPieceOfFloats + 77})
        for (const auto& [dtype, op] :
             {std::pair(DType::kBFloat16, ReduceOp::kAvg), std::pair(DType::kFloat16, ReduceOp::kSum),
              std::pair(DType::kInt32, ReduceOp::kBxor), std::pair(DType::kUInt8, ReduceOp::kMax),
              std::pair(DType::kComplex128, ReduceOp::kProduct),
              std::pair(DType::kFloat32, ReduceOp::kPremulSum)}) {
          const auto bytes = static_cast<std::size_t>(count) * size_of(dtype);
          const auto part = [&, dtype = dtype](int rank) {
            std::minstd_rand random(static_cast<unsigned>(rank + 1));
            std::vector<std::byte> data(bytes);
            for (std::int64_t i = 0; i < count; ++i) {
              const float value = static_cast<float>(random() % 9) - 4;
              std::byte* at = data.data() + static_cast<std::size_t>(i) * size_of(dtype);
              if (is_half(dtype)) narrow(dtype, &value, at, 1);
              if (dtype == DType::kFloat32) std::memcpy(at, &value, sizeof value);
              if (dtype == DType::kInt32 || dtype == DType::kUInt8) {
                const auto number = static_cast<std::int32_t>(random() % 100);
                std::memcpy(at, &number, size_of(dtype));
              }
              if (dtype == DType::kComplex128) {
                const double number[2] = {value, 1};
                std::memcpy(at, number, sizeof number);
              }
            }
            return data;
          };
          const auto factor_of = [](int rank) { return rank + 0.5; };
          std::vector<std::vector<std::byte>> parts;
          std::vector<const void*> pointers;
          for (int rank = 0; rank < size; ++rank) {
            parts.push_back(part(rank));
            if (op == ReduceOp::kPremulSum)
              scale(dtype, parts.back().data(), factor_of(rank), static_cast<std::size_t>(count));
          }
          for (const auto& each : parts) pointers.push_back(each.data());
          std::vector<std::byte> want = parts[0];
          if (size > 1) combine(dtype, op, pointers, want.data(), static_cast<std::size_t>(count));
          auto mine = part(me.rank);
          auto operation = operation_of(OpKind::kAllReduce, mine.data(), mine.data(), count);
          operation.dtype = dtype;
          operation.op = op;
          operation.factor = factor_of(me.rank);
          me.enqueue(operation);
          me.finish();
          EXPECT_EQ(mine, want) << name_of(op) << " of " << name_of(dtype) << " among " << size;
        }
    });
  }
}

// Without a pause between: what one leaves behind must not disturb the next.
inline void many_small_ones(const MakeRoute& make) {
  for (const int size : {1, 2, 4}) {
    on_ranks(make, size, [&](Rank& me) {
      constexpr int kTimes = 200;
      std::vector<std::vector<float>> results;
      std::vector<std::vector<float>> gathered;
      results.reserve(kTimes);
      gathered.reserve(kTimes);
      for (int i = 0; i < kTimes; ++i) {
        const std::int64_t count = 1 + i % 70;
        const auto seed = static_cast<unsigned>(i);
        results.push_back(numbers(count, me.rank, seed));
        float* x = results.back().data();
        const OpKind kind = i % 3 == 0   ? OpKind::kAllReduce
                            : i % 3 == 1 ? OpKind::kBroadcast
                                         : OpKind::kReduce;
        me.enqueue(operation_of(kind, x, x, count, i % size));
        gathered.emplace_back(static_cast<std::size_t>(count * size), -1.0f);
        float* all = gathered.back().data() + me.rank * count;  // in place
        const auto mine = numbers(count, me.rank, seed);
        std::copy(mine.begin(), mine.end(), all);
        me.enqueue(operation_of(OpKind::kAllGather, all, gathered.back().data(), count));
      }
      me.finish();
      for (int i = 0; i < kTimes; ++i) {
        const std::int64_t count = 1 + i % 70;
        const auto seed = static_cast<unsigned>(i);
        const int root = i % size;
        const bool has_sum = i % 3 == 0 || (i % 3 == 2 && me.rank == root);
        EXPECT_EQ(results[static_cast<std::size_t>(i)],
                  has_sum ? sum(count, size, seed) : numbers(count, i % 3 == 1 ? root : me.rank, seed));
        for (int r = 0; r < size; ++r)
          EXPECT_EQ(slice(gathered[static_cast<std::size_t>(i)], r * count, count), numbers(count, r, seed));
      }
    });
  }
}

// Blocks for each other rank, of sizes that change from call to call: none, some, and now and then
// many.
inline std::int64_t block_for(int from, int to, int call) {
  const int mixed = (7 * from + 3 * to + 5 * call) % 11;
  return mixed == 0 ? 0 : mixed == 1 && call % 8 == 0 ? kPieceOfFloats + 3 : mixed * (call % 30);
}

inline void many_exchanges(const MakeRoute& make) {
  for (const int size : {1, 2, 4}) {
    on_ranks(make, size, [&](Rank& me) {
      constexpr int kTimes = 100;
      struct Call {
        std::vector<std::int64_t> sent, taken;
        std::vector<float> from, to, want;
      };
      std::vector<Call> calls(kTimes);
      for (int i = 0; i < kTimes; ++i) {
        Call& call = calls[static_cast<std::size_t>(i)];
        for (int peer = 0; peer < size; ++peer) {
          call.sent.push_back(block_for(me.rank, peer, i));
          call.taken.push_back(block_for(peer, me.rank, i));
          const auto seed = static_cast<unsigned>(i * size + peer);
          const auto out = numbers(call.sent.back(), me.rank, seed);
          call.from.insert(call.from.end(), out.begin(), out.end());
          const auto in = numbers(call.taken.back(), peer, static_cast<unsigned>(i * size + me.rank));
          call.want.insert(call.want.end(), in.begin(), in.end());
        }
        call.to.assign(call.want.size(), -1);
        auto exchange = operation_of(OpKind::kAllToAll, call.from.data(), call.to.data(), 0);
        exchange.input_counts = call.sent;
        exchange.output_counts = call.taken;
        me.enqueue(exchange);
        if (i % 10 == 9) me.finish();
      }
      me.finish();
      for (int i = 0; i < kTimes; ++i)
        EXPECT_EQ(calls[static_cast<std::size_t>(i)].to, calls[static_cast<std::size_t>(i)].want) << i;
    });
  }
}

// One rank waits for another that never comes, and is then told to give up.
inline void lets_streams_go_on(const MakeRoute& make) {
  ThreadGroup groups(2);
  const auto errors = groups.run([&](int number, Communicator& group) {
    // What streams that go on too early move is of no use, and they race for it.
    Rank me = make_rank(make, group, {.moves_data = false});
    if (number == 1) return;
    const std::int64_t count = 100 * kPieceOfFloats;
    std::vector<float> x(static_cast<std::size_t>(count)), y(5);
    me.enqueue(operation_of(OpKind::kReceive, nullptr, y.data(), 5, 1));
    me.enqueue(operation_of(OpKind::kAllReduce, y.data(), y.data(), 5));
    me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), count));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(me.route->failure());
    std::atomic<bool> done{false};
    std::thread watch([&] {  // once is not enough where GPUs set their flags themselves
      while (!done) {
        me.route->abort("aborted by the test");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
    me.finish();
    done = true;
    watch.join();
    const auto failure = me.route->failure();
    ASSERT_TRUE(failure);
    EXPECT_NE(std::string(failure->what()).find("aborted by the test"), std::string::npos);
    EXPECT_THROW(me.enqueue(operation_of(OpKind::kAllReduce, y.data(), y.data(), 5)), Error);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// A caller that reads a result after the stream's end reads the right one, or a mark.
// At 1aa6fc3 it read what the memory had held before.
inline void marks_aborted_results(const MakeRoute& make) {
  for (const std::int64_t count : {std::int64_t{5}, 20 * kPieceOfFloats + 3}) {
    ThreadGroup groups(2);
    std::atomic<bool> over{false};
    const auto errors = groups.run([&](int number, Communicator& group) {
      Rank me = make_rank(make, group, {.seed = static_cast<unsigned>(number + 1), .aborts = true});
      const auto elements = static_cast<std::size_t>(count);
      std::vector<float> good(elements, 1.0f), sum(elements, 1.0f), taken(elements, 1.0f);
      std::vector<float> gathered(2 * elements, 1.0f), part(elements, 1.0f);
      std::vector<std::int32_t> integers(elements, 1);
      me.enqueue(operation_of(OpKind::kAllReduce, good.data(), good.data(), count));
      me.finish();
      for (const float value : good) ASSERT_EQ(value, 2.0f);
      if (number == 1) {  // it lives, and never calls the others
        while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      me.enqueue(operation_of(OpKind::kAllReduce, sum.data(), sum.data(), count));
      me.enqueue(operation_of(OpKind::kAllGather, part.data(), gathered.data(), count));
      me.enqueue(operation_of(OpKind::kReceive, nullptr, taken.data(), count, 1));
      Operation of_integers = operation_of(OpKind::kAllReduce, integers.data(), integers.data(), count);
      of_integers.dtype = DType::kInt32;
      me.enqueue(of_integers);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::atomic<bool> done{false};
      std::thread watch([&] {
        while (!done) {
          me.route->abort("aborted by the test");
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      });
      me.finish();
      done = true;
      watch.join();
      for (std::size_t i = 0; i < elements; ++i) {
        ASSERT_TRUE(std::isnan(sum[i])) << i;
        ASSERT_TRUE(std::isnan(taken[i])) << i;
        ASSERT_EQ(integers[i], std::numeric_limits<std::int32_t>::min()) << i;
        ASSERT_TRUE(std::isnan(gathered[elements + i])) << i;
      }
      over = true;
    });
    over = true;
    EXPECT_EQ(errors, std::vector<std::string>(2));
  }
}

}  // namespace altorch::staged
