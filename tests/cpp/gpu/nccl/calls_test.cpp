// SPDX-License-Identifier: BSD-3-Clause
// How operations that move data are said in NCCL's words.
#include <algorithm>
#include <random>

#include "gpu/nccl/nccl_ranks.h"

namespace altorch::nccl {
namespace {

using Words = std::vector<std::int16_t>;  // a type that NCCL knows as bytes only
constexpr DType kType = DType::kInt16;
constexpr int kNewest = 22809, kWithoutAllToAll = 22703;

Words block(int from, int to, std::int64_t count, unsigned seed) {
  std::mt19937 random(seed * 10000 + static_cast<unsigned>(from * 100 + to));
  Words made(static_cast<std::size_t>(count));
  for (auto& word : made) word = static_cast<std::int16_t>(random());
  return made;
}

void append(Words& all, const Words& part) { all.insert(all.end(), part.begin(), part.end()); }

// What each rank has in a call, some nothing; the same on every rank.
std::vector<std::int64_t> counts_of(int size, unsigned seed, bool even) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < size; ++rank)
    counts.push_back(even && rank > 0 ? counts[0]
                                      : static_cast<std::int64_t>(random() % 4 * (random() % 50)));
  return counts;
}

TEST(NcclCalls, MoveVectorsAndBlocks) {
  FakeNccl fake;
  for (const int size : {1, 2, 3, 4}) {
    on_ranks(fake, size, [&](NcclRank& me) {
      for (unsigned seed = 1; seed <= 12; ++seed) {
        const bool even = seed % 2 == 0;
        const int root = static_cast<int>(seed) % size;
        const auto counts = counts_of(size, seed, even);
        const std::int64_t own = counts[static_cast<std::size_t>(me.rank)];
        Words all, before;
        for (int rank = 0; rank < size; ++rank) {
          if (rank == me.rank) before = all;
          append(all, block(rank, 0, counts[static_cast<std::size_t>(rank)], seed));
        }
        const Words mine = block(me.rank, 0, own, seed);

        Words vector = me.rank == root ? block(root, 1, 99, seed) : Words(99);
        me.enqueue(call_of(OpKind::kBroadcast, kType, nullptr, vector.data(), 99, root));

        for (const bool in_place : {false, true}) {
          Words gathered(all.size());
          std::int16_t* place = gathered.data() + before.size();
          if (in_place) std::copy(mine.begin(), mine.end(), place);
          Call call =
              call_of(OpKind::kAllGather, kType, in_place ? place : mine.data(), gathered.data(), own);
          if (!even) call.output_counts = counts;
          me.enqueue(call);
          me.finish();
          EXPECT_EQ(gathered, all) << seed << (in_place ? " in place" : "");
        }

        Words at_root(me.rank == root ? all.size() : 0), scattered(static_cast<std::size_t>(own));
        Call gather = call_of(OpKind::kGather, kType, mine.data(), at_root.data(), own, root);
        if (!even && me.rank == root) gather.output_counts = counts;
        me.enqueue(gather);
        Call scatter = call_of(OpKind::kScatter, kType, me.rank == root ? all.data() : nullptr,
                               scattered.data(), own, root);
        if (!even && me.rank == root) scatter.input_counts = counts;
        me.enqueue(scatter);
        me.finish();
        EXPECT_EQ(vector, block(root, 1, 99, seed));
        if (me.rank == root) {
          EXPECT_EQ(at_root, all) << seed;
        }
        EXPECT_EQ(scattered, mine) << seed;
        me.enqueue(call_of(OpKind::kBarrier, kType, nullptr, nullptr, 0));
      }
    });
  }
}

// An all_to_all whose blocks have these sizes, by sender and receiver.
void exchange(const NcclRank& me, unsigned seed, bool says_counts,
              const std::function<std::int64_t(int from, int to)>& count, std::int64_t paired_bytes = 0) {
  Words input, want;
  std::vector<std::int64_t> sent, taken;
  for (int peer = 0; peer < me.size; ++peer) {
    sent.push_back(count(me.rank, peer));
    taken.push_back(count(peer, me.rank));
    append(input, block(me.rank, peer, sent.back(), seed));
    Words expected = block(peer, me.rank, taken.back(), seed);
    if (2 * std::max(sent.back(), taken.back()) <= paired_bytes)
      std::fill(expected.begin(), expected.end(), -1);
    append(want, expected);
  }
  Words output(want.size(), -1);
  Call call = call_of(OpKind::kAllToAll, kType, input.data(), output.data(), says_counts ? 0 : sent[0]);
  if (says_counts) call.input_counts = sent;
  if (says_counts) call.output_counts = taken;
  call.paired_bytes = paired_bytes;
  me.enqueue(call);
  me.finish();
  EXPECT_EQ(output, want) << "rank " << me.rank << " of " << me.size << ", seed " << seed;
}

std::int64_t uneven(int from, int to) { return (3 * from + 5 * to) % 4 * 11; }

TEST(NcclCalls, ExchangeBlocksWithAndWithoutAnAllToAllOfNccls) {
  for (const int version : {kNewest, kWithoutAllToAll}) {
    FakeNccl fake(version);
    for (const int size : {1, 2, 3, 5}) {
      on_ranks(fake, size, [&](NcclRank& me) {
        for (unsigned seed = 1; seed < 6; ++seed) {
          exchange(me, seed, false, [&](int, int) { return std::int64_t{8} * seed; });
          exchange(me, seed, true, uneven);
        }
        exchange(me, 7, false, [](int, int) { return 0; });
      });
    }
    EXPECT_EQ(fake.calls("ncclAlltoAll"), version == kNewest ? (1 + 2 + 3 + 5) * 6 : 0);
    EXPECT_GT(fake.calls("ncclSend"), 0);
  }
}

// NCCL may take copy engines for its own then, which meet no sends and receives of a rank with
// uneven blocks.
TEST(NcclCalls, ExchangeBlocksBySendsWhereABufferIsSymmetric) {
  FakeNccl fake(kNewest);
  on_ranks(fake, 2, [&](NcclRank& me) {
    std::vector<float> buffer(10);
    const auto count = [](int, int) { return 8; };
    me.comm->add_buffer(buffer.data(), 40, /*symmetric=*/true);
    exchange(me, 1, false, count);
    me.comm->remove_buffer(buffer.data());
    exchange(me, 2, false, count);
  });
  EXPECT_EQ(fake.calls("ncclAlltoAll"), 2);
}

// Only a rank's own blocks tell whether its counts are all alike.
TEST(NcclCalls, ARankWithEvenBlocksMeetsOneWithout) {
  for (const int version : {kNewest, kWithoutAllToAll}) {
    FakeNccl fake(version);
    on_ranks(fake, 3, [&](NcclRank& me) {
      // Rank 0 has four for each and from each.
      const auto count = [](int from, int to) { return from == 0 || to == 0 ? 4 : uneven(from, to); };
      exchange(me, 3, me.rank != 0, count);
    });
  }
}

TEST(NcclCalls, LeaveOutPairsThatGoAnotherWay) {
  FakeNccl fake;
  on_ranks(fake, 4, [&](NcclRank& me) {
    exchange(me, 1, true, uneven, /*paired_bytes=*/22);
    exchange(me, 2, true, uneven, /*paired_bytes=*/1000);  // all of them
  });
}

TEST(NcclCalls, TakeAGroupWhereTheyAreSeveral) {
  struct Case {
    OpKind kind;
    bool uneven;
    int groups;
  };
  for (const Case& each : {Case{OpKind::kAllGather, false, 0}, Case{OpKind::kAllGather, true, 1},
                           Case{OpKind::kReduceScatter, false, 0}, Case{OpKind::kReduceScatter, true, 1},
                           Case{OpKind::kBroadcast, false, 0}, Case{OpKind::kAllToAll, true, 1},
                           Case{OpKind::kAllToAll, false, 0}, Case{OpKind::kGather, false, 1}}) {
    FakeNccl fake;
    on_ranks(fake, 1, [&](NcclRank& me) {
      std::vector<float> input(5), output(5);
      const std::vector<std::int64_t> counts = {5};
      Call call = call_of(each.kind, DType::kFloat32, input.data(), output.data(), 5);
      if (each.uneven) call.input_counts = call.output_counts = counts;
      EXPECT_EQ(NcclComm::is_one_call(call), each.groups == 0 && each.kind != OpKind::kAllToAll);
      me.enqueue(call);
      me.finish();
    });
    EXPECT_EQ(fake.calls("ncclGroupStart"), each.groups) << name_of(each.kind);
    EXPECT_EQ(fake.calls("ncclGroupEnd"), each.groups) << name_of(each.kind);
  }
}

// Each rank sends before it receives, and reduces beside it.
TEST(NcclCalls, SeveralOperationsGoAsOne) {
  FakeNccl fake;
  on_ranks(fake, 3, [&](NcclRank& me) {
    std::vector<float> sum(50, 1.0f + static_cast<float>(me.rank));
    std::vector<Words> sent, taken;
    std::vector<Call> calls = {sum_of(sum)};
    sent.reserve(6);
    taken.reserve(6);
    for (unsigned round = 0; round < 2; ++round) {
      for (int peer = 0; peer < 3; ++peer) {  // itself too
        sent.push_back(block(me.rank, peer, 30, round));
        calls.push_back(call_of(OpKind::kSend, kType, sent.back().data(), nullptr, 30, peer));
      }
    }
    for (unsigned round = 0; round < 2; ++round) {
      for (int peer = 2; peer >= 0; --peer) {
        taken.emplace_back(30);
        calls.push_back(call_of(OpKind::kReceive, kType, nullptr, taken.back().data(), 30, peer));
      }
    }
    me.comm->enqueue(calls, me.stream);
    me.finish();
    EXPECT_EQ(sum, std::vector<float>(50, 6.0f));
    std::size_t i = 0;
    for (unsigned round = 0; round < 2; ++round) {
      for (int peer = 2; peer >= 0; --peer) EXPECT_EQ(taken[i++], block(peer, me.rank, 30, round));
    }
  });
  EXPECT_EQ(fake.calls("ncclGroupStart"), 3);
}

TEST(NcclCalls, BehaveLikeKernelsInTheirStream) {
  FakeNccl fake;
  on_ranks(fake, 2, [&](NcclRank& me) {
    for (int round = 0; round < 5; ++round) {
      std::vector<float> x(100, -1e9f), copy;
      // What comes before and what comes after run late: neither may be overtaken.
      me.device.launch(
          [&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
            std::fill(x.begin(), x.end(), static_cast<float>(round + me.rank));
          },
          me.stream);
      me.enqueue(sum_of(x));
      me.device.launch([&] { copy = x; }, me.stream);
      me.device.launch([&] { std::fill(x.begin(), x.end(), 1.0f); }, me.stream);
      me.enqueue(sum_of(x));
      me.finish();
      EXPECT_EQ(copy, std::vector<float>(100, static_cast<float>(2 * round + 1)));
      EXPECT_EQ(x, std::vector<float>(100, 2.0f));
    }
  });
}

// The peer has not even called when the host goes on.
TEST(NcclCalls, DoNotHoldUpTheHost) {
  FakeNccl fake;
  std::atomic<bool> gone_on{false};
  on_ranks(fake, 2, [&](NcclRank& me) {
    std::vector<float> x(10, 1.0f);
    while (me.rank == 1 && !gone_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    me.enqueue(sum_of(x));
    gone_on = true;
    me.finish();
    EXPECT_EQ(x, std::vector<float>(10, 2.0f));
  });
}

}  // namespace
}  // namespace altorch::nccl
