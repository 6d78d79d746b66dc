// SPDX-License-Identifier: BSD-3-Clause
// Kernels of small exchanges that run at the same time, each on a stream of its own, as they do on
// the GPUs of several ranks: every kernel has few blocks, so that one GPU has room for all of them.
// Under tools that serialise kernels, these tests would never end.
#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

#include "device/exchange_cases.h"
#include "gpu/ll_exchanges.h"
#include "support/gpu_test.h"

namespace altorch {
namespace {

class CudaTogether : public GpuKernelTest {
 protected:
  // What is loaded while a kernel waits may wait for that kernel.
  void load(const std::vector<ExchangeCase>& cases) {
    const Stream stream = gpu().make_stream();
    Bench bench(device(), stream, device().allocate(Bench::kBytes), [&] { return gpu().finish(stream); });
    for (ExchangeCase alone : cases) {
      alone.number = 1;
      alone.root = 0;
      ASSERT_EQ(run_alone(bench, alone, 0, gpu().aborted()).value_or(""), "");
    }
  }
  void exchange_in_a_row(int ranks);
  void exchange_pairs_in_a_row(int ranks);
};

// Patterns, types, sizes and roots change from exchange to exchange, the areas take turns, and the
// numbers come round to 0 on the way.
std::vector<ExchangeCase> a_row_of_exchanges(int ranks) {
  constexpr std::pair<DType, ReduceOp> reductions[] = {
      {DType::kFloat32, ReduceOp::kSum},  {DType::kBFloat16, ReduceOp::kAvg},
      {DType::kUInt8, ReduceOp::kMax},    {DType::kComplex128, ReduceOp::kProduct},
      {DType::kBool, ReduceOp::kSum},     {DType::kFloat64, ReduceOp::kPremulSum},
      {DType::kInt16, ReduceOp::kProduct}};
  constexpr std::int64_t counts[] = {1, 1023, 0, 5, 512};
  std::vector<ExchangeCase> cases;
  std::uint32_t exchange = 0xFFFFFFE0u;
  for (unsigned i = 0; i < 70; ++i) {
    ExchangeCase next{static_cast<Pattern>(i % 5), DType::kUInt8, ReduceOp::kSum, ranks, counts[i / 5 % 5]};
    if (!next.moves()) std::tie(next.dtype, next.op) = reductions[i % std::size(reductions)];
    next.in_place = i % 2 == 1;
    next.root = static_cast<int>(i) % ranks;
    next.exchange = exchange;
    exchange = exchange == 0xFFFFFFFFu ? 2 : exchange + 1;
    cases.push_back(next);
  }
  return cases;
}

void CudaTogether::exchange_in_a_row(int ranks) {
  const LlSlotShape shape = LlSlotShape::of(4 * kMostBytes, ranks, LlExchange::kMostBlocks);
  const std::vector<ExchangeCase> cases = a_row_of_exchanges(ranks);
  load(cases);
  const PinnedMemory areas = device().pin(static_cast<std::size_t>(ranks) * shape.bytes());
  std::vector<std::uint64_t*> posts;
  for (int rank = 0; rank < ranks; ++rank)
    posts.push_back(
        reinterpret_cast<std::uint64_t*>(areas.get() + static_cast<std::size_t>(rank) * shape.bytes()));

  struct Rank {
    Stream stream;
    std::vector<LaidExchange> laid;
    std::vector<std::size_t> at;  // where each begins
    std::shared_ptr<std::byte> memory, numbers;
    PinnedMemory staging, last;
  };
  std::vector<Rank> all;
  for (int rank = 0; rank < ranks; ++rank) {
    Rank& own = all.emplace_back();
    own.stream = gpu().make_stream();
    std::size_t bytes = 0;
    for (const ExchangeCase& exchange : cases) {
      own.at.push_back(bytes);
      bytes += (own.laid.emplace_back(exchange, rank, /*counts=*/false).memory().before().size() + 255) /
               256 * 256;
    }
    own.memory = device().allocate(bytes);
    own.staging = device().pin(bytes);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Bytes& before = own.laid[i].memory().before();
      std::memcpy(own.staging.get() + own.at[i], before.data(), before.size());
    }
    device().copy_to_device(own.memory.get(), own.staging.get(), bytes, own.stream);
    own.numbers = device().allocate(LlExchange::kMostBlocks * sizeof(std::uint32_t));
    own.last = device().pin(LlExchange::kMostBlocks * sizeof(std::uint32_t));
    const Bytes last = numbers_of(LlExchange::kMostBlocks, 0xFFFFFFE0u);
    std::memcpy(own.last.get(), last.data(), last.size());
    device().copy_to_device(own.numbers.get(), own.last.get(), last.size(), own.stream);
  }

  const std::span<Flag> starts = gpu().flags();
  for (int rank = 0; rank < ranks; ++rank) {
    Rank& own = all[static_cast<std::size_t>(rank)];
    device().wait_for_flag(starts[static_cast<std::size_t>(rank)], 1, own.stream);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      LlExchange job = own.laid[i].job(own.memory.get() + own.at[i], posts, gpu().aborted());
      const bool scatters = cases[i].scatters();
      for (int other = 0; other < ranks; ++other) {
        job.send_slots[other] = posts[static_cast<std::size_t>(rank)] + (scatters ? other * shape.part : 0);
        job.receive_slots[other] =
            posts[static_cast<std::size_t>(other)] + (scatters ? rank * shape.part : 0);
      }
      job.half = shape.half;
      job.region = shape.region;
      job.numbers = reinterpret_cast<std::uint32_t*>(own.numbers.get());
      job.blocks = shape.blocks_for(static_cast<std::int64_t>(cases[i].bytes_of_place()),
                                    scatters ? shape.part : shape.region);
      own.laid[i].enqueue(device(), job, own.stream);
    }
    const std::size_t bytes = own.at.back() + own.laid.back().memory().before().size();
    device().copy_to_host(own.staging.get(), own.memory.get(), bytes, own.stream);
  }
  // The last is the first to begin.
  for (int rank = ranks; rank-- > 0;) {
    starts[static_cast<std::size_t>(rank)].raise(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (Rank& own : all) ASSERT_TRUE(gpu().finish(own.stream));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Rank& own = all[rank];
    for (std::size_t i = 0; i < cases.size(); ++i) {
      EXPECT_EQ(own.laid[i].memory().difference(own.staging.get() + own.at[i]).value_or(""), "")
          << "exchange " << i << ": " << cases[i].text(static_cast<int>(rank));
    }
  }
}

TEST_F(CudaTogether, TwoRanksExchangeInARow) { exchange_in_a_row(2); }
TEST_F(CudaTogether, FourRanksExchangeInARow) { exchange_in_a_row(4); }

// Of a byte that one rank has for another.
unsigned char byte_for(int from, int to, int call, std::uint32_t at) {
  return static_cast<unsigned char>(37 * from + 11 * to + 5 * call + 3 * static_cast<int>(at) + 1);
}
std::uint32_t bytes_for(int from, int to, int call) {
  constexpr std::uint32_t sizes[] = {1, 4096, 0, 17, 1023, 16384, 5};
  return sizes[(3 * from + to + call) % 7];
}

void CudaTogether::exchange_pairs_in_a_row(int ranks) {
  constexpr int kCalls = 60;
  constexpr std::size_t kRoom = 16384;
  const LlSlotShape shape = LlExchanges::pair_shape(ranks, kRoom);
  const auto count = static_cast<std::size_t>(ranks), all = kCalls * count * kRoom;
  device().prepare_ll_moves();
  const PinnedMemory areas = device().pin(count * count * shape.bytes());
  const auto area = [&](int from, int to) {
    const std::size_t pair = static_cast<std::size_t>(from * ranks + to);
    return reinterpret_cast<std::uint64_t*>(areas.get() + pair * shape.bytes());
  };
  struct Rank {
    Stream stream;
    std::shared_ptr<std::byte> memory;  // input, then output: room for every call and peer
    PinnedMemory staging;
    std::shared_ptr<std::byte> numbers;
  };
  std::vector<Rank> members;
  const auto place = [&](int call, int peer) {
    return (static_cast<std::size_t>(call) * count + static_cast<std::size_t>(peer)) * kRoom;
  };
  for (int rank = 0; rank < ranks; ++rank) {
    Rank& own =
        members.emplace_back(Rank{gpu().make_stream(), device().allocate(2 * all), device().pin(2 * all),
                                  device().allocate(count * static_cast<std::size_t>(shape.blocks) * 4)});
    for (int call = 0; call < kCalls; ++call) {
      for (int peer = 0; peer < ranks; ++peer) {
        for (std::uint32_t at = 0; at < bytes_for(rank, peer, call); ++at)
          own.staging.get()[place(call, peer) + at] = std::byte{byte_for(rank, peer, call, at)};
      }
    }
    device().copy_to_device(own.memory.get(), own.staging.get(), 2 * all, own.stream);
  }
  const std::span<Flag> starts = gpu().flags();
  for (int rank = 0; rank < ranks; ++rank) {
    Rank& own = members[static_cast<std::size_t>(rank)];
    device().wait_for_flag(starts[static_cast<std::size_t>(rank)], 1, own.stream);
    for (int call = 0; call < kCalls; ++call) {
      PairExchange job;
      job.half = shape.half;
      job.region = shape.region;
      job.aborted = gpu().aborted();
      for (int peer = 0; peer < ranks; ++peer) {
        PairExchange::Pair& pair = job.pairs[job.number++];
        pair.input = own.memory.get() + place(call, peer);
        pair.output = own.memory.get() + all + place(call, peer);
        pair.sent = bytes_for(rank, peer, call);
        pair.taken = bytes_for(peer, rank, call);
        pair.blocks = shape.blocks_for(std::max(pair.sent, pair.taken), shape.region);
        if (peer == rank) continue;
        pair.numbers = reinterpret_cast<std::uint32_t*>(own.numbers.get()) + peer * shape.blocks;
        pair.send_slots = area(rank, peer);
        pair.theirs = area(peer, rank);
      }
      device().exchange_pairs(job, own.stream);
    }
    device().copy_to_host(own.staging.get(), own.memory.get(), 2 * all, own.stream);
  }
  for (int rank = ranks; rank-- > 0;) {
    starts[static_cast<std::size_t>(rank)].raise(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (Rank& own : members) ASSERT_TRUE(gpu().finish(own.stream));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::byte* output = members[static_cast<std::size_t>(rank)].staging.get() + all;
    for (int call = 0; call < kCalls; ++call) {
      for (int peer = 0; peer < ranks; ++peer) {
        const std::uint32_t taken = bytes_for(peer, rank, call);
        for (std::uint32_t at = 0; at < kRoom; ++at) {
          const auto want = at < taken ? byte_for(peer, rank, call, at) : 0;  // and nothing behind it
          ASSERT_EQ(static_cast<int>(output[place(call, peer) + at]), static_cast<int>(want))
              << "rank " << rank << ", peer " << peer << ", call " << call << ", byte " << at;
        }
      }
    }
  }
}

TEST_F(CudaTogether, TwoRanksExchangePairsInARow) { exchange_pairs_in_a_row(2); }
TEST_F(CudaTogether, FourRanksExchangePairsInARow) { exchange_pairs_in_a_row(4); }

// The others' words come one by one, in any order, while the kernel is looking for them.
TEST_F(CudaTogether, AKernelTakesWordsAsTheyCome) {
  std::vector<ExchangeCase> cases;
  for (const Pattern pattern : {Pattern::kAllReduce, Pattern::kReduceScatter, Pattern::kAllGather})
    cases.push_back({pattern, DType::kUInt8, ReduceOp::kSum, 3, 1023, /*in_place=*/true});
  load(cases);
  const Stream stream = gpu().make_stream();
  Bench bench(device(), stream, device().allocate(Bench::kBytes), [&] { return gpu().finish(stream); });
  for (const ExchangeCase& exchange : cases) {
    const LaidExchange laid(exchange, 1);
    const LaidAreas posted(exchange, 1);
    const auto wrong =
        bench.run(laid.memory(), posted.memory(), [&](std::byte* memory, std::byte* pinned, Stream on) {
          const std::vector<std::uint64_t*> areas = posted.areas(pinned);
          std::vector<std::pair<std::uint64_t*, std::uint64_t>> words;
          for (const int other : {0, 2}) {
            for (std::uint64_t* word : posted.wanted(pinned, other, 1))
              words.emplace_back(word, std::exchange(*word, 0));
          }
          std::shuffle(words.begin(), words.end(), std::minstd_rand(1));
          laid.enqueue(device(), laid.job(memory, areas, gpu().aborted()), on);
          for (const auto& [word, value] : words) {
            std::atomic_ref(*word).store(value, std::memory_order_release);
            std::this_thread::sleep_for(std::chrono::microseconds(1));
          }
        });
    EXPECT_EQ(wrong.value_or(""), "") << exchange.text(1);
  }
}

TEST_F(CudaTogether, AKernelThatWaitsEndsWhenAborted) {
  const ExchangeCase exchange{Pattern::kAllReduce, DType::kFloat32, ReduceOp::kSum, 2, 100};
  load({exchange});
  const Stream stream = gpu().make_stream();
  const auto memory = device().allocate(4096);
  const PinnedMemory pinned = device().pin(16 * kRegion);
  const LaidExchange laid(exchange, 0);
  std::uint64_t* const areas[] = {reinterpret_cast<std::uint64_t*>(pinned.get()),
                                  reinterpret_cast<std::uint64_t*>(pinned.get() + 8 * kRegion)};
  laid.enqueue(device(), laid.job(memory.get(), areas, gpu().aborted()), stream);
  Flag& ended = gpu().flags()[0];
  device().raise(ended, 1, stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ended.reached(1));
  std::atomic_ref(*gpu().aborted()).store(1, std::memory_order_release);
  EXPECT_TRUE(gpu().finish(stream));
}

}  // namespace
}  // namespace altorch
