// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/peer/peer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "gpu/host_staged/conformance.h"
#include "reduction/quantized.h"
#include "rendezvous/store_allgather.h"
#include "select/world.h"
#include "support/route_setting.h"

namespace altorch {
namespace {

using namespace staged;  // NOLINT

std::unique_ptr<GpuRoute> make_peer(std::unique_ptr<Device> device, Communicator& group, std::size_t small,
                                    int ll128_blocks = 0) {
  const int rank = group.rank(), size = group.size();
  const PeerLayout layout{.ranks = size,
                          .ll_bytes = small,
                          .pair_bytes = small,
                          .part_bytes = 8 << 10,
                          .ll_blocks = 4,
                          .two_shot_blocks = 4,
                          .one_shot_blocks = 4,
                          .exchange_blocks = 2,
                          .message_blocks = 2,
                          .ll128_blocks = ll128_blocks,
                          .reducing_ll128_blocks = ll128_blocks,
                          .one_shot_bytes = 3 << 10};
  PeerRoute::Memory memory;
  memory.note = memory_of(group, 4096, -1);
  for (int peer = 0; peer < size; ++peer) memory.of.push_back(memory_of(group, layout.bytes(), peer));
  store_allgather(group.store(), "memory", rank, size, std::chrono::seconds(20), "to share its memory");
  return std::make_unique<PeerRoute>(std::move(device), std::move(memory), layout, rank);
}
std::unique_ptr<GpuRoute> peer(std::unique_ptr<Device> device, Communicator& group) {
  return make_peer(std::move(device), group, 4 << 10);
}
// Calls that are not small go by LL128, the larger ones in several rounds: a warp moves 1920 bytes
// in a round.
std::unique_ptr<GpuRoute> linked(std::unique_ptr<Device> device, Communicator& group) {
  return make_peer(std::move(device), group, 1 << 10, /*ll128_blocks=*/1);
}

TEST(PeerByLl128, ReducesAndBroadcastsVectorsOfAnySize) { vectors_of_any_size(linked); }
TEST(PeerByLl128, GathersAndScattersBlocksEvenAndUneven) { blocks_even_and_uneven(linked); }
TEST(PeerByLl128, ExchangesUnevenBlocksLargerThanItsMemory) { exchanges_larger_than_its_memory(linked); }
TEST(PeerByLl128, GathersAtAndScattersFromARoot) { gathers_and_scatters_at_a_root(linked); }
TEST(PeerByLl128, CarriesMessagesOfOneWindowInAnyOrder) { windows_in_any_order(linked); }
TEST(PeerByLl128, BehavesLikeAKernelInItsStream) { behaves_like_a_kernel(linked); }
TEST(PeerByLl128, ReducesTypesByOperators) { types_and_operators(linked); }
TEST(PeerByLl128, CarriesSmallCollectivesOneAfterAnother) { many_small_ones(linked); }
TEST(PeerByLl128, ExchangesBlocksOfAnySizeOneAfterAnother) { many_exchanges(linked); }
TEST(PeerByLl128, LetsStreamsGoOnWhenAnotherRankNeverComes) { lets_streams_go_on(linked); }
TEST(PeerByLl128, MarksResultsThatAreAborted) { marks_aborted_results(linked); }

TEST(Peer, ReducesAndBroadcastsVectorsOfAnySize) { vectors_of_any_size(peer); }
TEST(Peer, GathersAndScattersBlocksEvenAndUneven) { blocks_even_and_uneven(peer); }
TEST(Peer, ExchangesUnevenBlocksLargerThanItsMemory) { exchanges_larger_than_its_memory(peer); }
TEST(Peer, GathersAtAndScattersFromARoot) { gathers_and_scatters_at_a_root(peer); }
TEST(Peer, CarriesMessagesOfOneWindowInAnyOrder) { windows_in_any_order(peer); }
TEST(Peer, BehavesLikeAKernelInItsStream) { behaves_like_a_kernel(peer); }
TEST(Peer, ReducesTypesByOperators) { types_and_operators(peer); }
TEST(Peer, CarriesSmallCollectivesOneAfterAnother) { many_small_ones(peer); }
TEST(Peer, ExchangesBlocksOfAnySizeOneAfterAnother) { many_exchanges(peer); }
TEST(Peer, LetsStreamsGoOnWhenAnotherRankNeverComes) { lets_streams_go_on(peer); }
TEST(Peer, MarksResultsThatAreAborted) { marks_aborted_results(peer); }

// Whatever their size, as far as the protocol can carry them.
TEST(Peer, CarriesCallsByTheProtocolThatIsAskedFor) {
  for (const char* protocol : {"one_shot", "two_shot", "exchange", "pairs"}) {
    const RouteSetting setting("cuda=peer/" + std::string(protocol));
    vectors_of_any_size(peer);
  }
  const RouteSetting setting("cuda=peer/one_shot");
  blocks_even_and_uneven(peer);
  types_and_operators(peer);
}

TEST(PeerByLl128, CarriesCallsByTheProtocolThatIsAskedFor) {
  for (const char* protocol : {"ll128", "ll128_two_shot"}) {
    const RouteSetting setting("cuda=peer/" + std::string(protocol));
    vectors_of_any_size(linked);
    types_and_operators(linked);
  }
}

// What all ranks get: packs are added in float32, and packed once more among more than two.
std::vector<float> sum_in_8_bits(std::int64_t count, int ranks, bool float8, bool mean) {
  const auto length = static_cast<std::size_t>(count), units = (length + kQuantizedUnit - 1) / kQuantizedUnit;
  const auto packs_of = [&](const std::vector<float>& values) {
    std::vector<std::uint16_t> packs(units * kQuantizedUnitBytes / 2);
    quantize(DType::kFloat32, float8, values.data(), length, packs.data(), units);
    return packs;
  };
  std::vector<std::vector<std::uint16_t>> kept;
  std::vector<const void*> parts;
  for (int rank = 0; rank < ranks; ++rank) kept.push_back(packs_of(numbers(count, rank)));
  for (const auto& packs : kept) parts.push_back(packs.data());
  std::vector<float> sum(length);
  sum_quantized(DType::kFloat32, float8, parts, mean ? 1.0f / static_cast<float>(ranks) : 1.0f, sum.data(),
                length);
  if (ranks == 2) return sum;
  const auto passed_on = packs_of(sum);
  const void* const alone[] = {passed_on.data()};
  sum_quantized(DType::kFloat32, float8, alone, 1.0f, sum.data(), length);
  return sum;
}

TEST(PeerByLl128, SumsIn8BitsAsCpusDo) {
  for (const int size : {2, 3, 4, 8}) {
    on_ranks(linked, size, [](Rank& me) {
      for (const std::int64_t count : {1, 839, 841, 5 * 840 + 121, 100'003}) {
        for (const auto op : {ReduceOp::kInt8Sum, ReduceOp::kFloat8Avg}) {
          const auto input = numbers(count, me.rank);
          std::vector<float> output(input.size());
          auto sum = operation_of(OpKind::kAllReduce, input.data(), output.data(), count);
          sum.op = op;
          me.enqueue(sum);
          me.finish();
          EXPECT_EQ(output, sum_in_8_bits(count, me.size, is_float8_sum(op), is_mean(op)))
              << count << " " << name_of(op) << " among " << me.size;
        }
      }
    });
  }
}

// A message may be sent before a collective that its receiver calls first.
TEST(Peer, KeepsMessagesApartFromCollectives) {
  on_ranks(peer, 2, [](Rank& me) {
    const std::int64_t count = 5000;
    const auto message = numbers(count, me.rank, 1), block = numbers(2 * kPieceOfFloats, me.rank, 2);
    std::vector<float> received(static_cast<std::size_t>(count)), gathered(2 * block.size());
    const auto gather = operation_of(OpKind::kAllGather, block.data(), gathered.data(), 2 * kPieceOfFloats);
    if (me.rank == 0) {
      me.enqueue(operation_of(OpKind::kSend, message.data(), nullptr, count, 1));
      me.enqueue(gather);
    } else {
      me.enqueue(gather);
      me.enqueue(operation_of(OpKind::kReceive, nullptr, received.data(), count, 0));
    }
    me.finish();
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(slice(gathered, rank * 2 * kPieceOfFloats, 2 * kPieceOfFloats),
                numbers(2 * kPieceOfFloats, rank, 2));
    if (me.rank == 1) {
      EXPECT_EQ(received, numbers(count, 0, 1));
    }
  });
}

void exchanges_in_place(const MakeRoute& make) {
  for (const int size : {2, 3}) {
    on_ranks(make, size, [](Rank& me) {
      if (me.size == 2) {  // blocks that stay where they are, beside one of another size
        const std::int64_t small = 100, large = 2 * kPieceOfFloats, own = me.rank == 0 ? small : 50;
        const std::vector<std::int64_t> counts =
            me.rank == 0 ? std::vector<std::int64_t>{own, large} : std::vector<std::int64_t>{large, own};
        auto both = numbers(own + large, me.rank, 3);
        auto exchange = operation_of(OpKind::kAllToAll, both.data(), both.data(), 0);
        exchange.input_counts = exchange.output_counts = counts;
        me.enqueue(exchange);
        me.finish();
        const auto theirs = numbers((me.rank == 0 ? 50 : small) + large, 1 - me.rank, 3);
        EXPECT_EQ(slice(both, me.rank == 0 ? small : 0, large),
                  slice(theirs, me.rank == 0 ? 0 : small, large));
      }
      for (const std::int64_t count : {std::int64_t{7}, 3 * kPieceOfFloats + 1}) {
        const std::int64_t total = me.size * count;
        auto both = numbers(total, me.rank);
        me.enqueue(operation_of(OpKind::kAllToAll, both.data(), both.data(), count));
        me.finish();
        for (int peer = 0; peer < me.size; ++peer)
          EXPECT_EQ(slice(both, peer * count, count), slice(numbers(total, peer), me.rank * count, count))
              << count << " of " << peer;
      }
    });
  }
}

TEST(Peer, ExchangesInPlace) { exchanges_in_place(peer); }
TEST(PeerByLl128, ExchangesInPlace) { exchanges_in_place(linked); }

// The slots of what ends within a pack are used again while the other direction still goes on.
TEST(PeerByLl128, OneDirectionEndsLongBeforeTheOther) {
  on_ranks(linked, 2, [](Rank& me) {
    const std::int64_t sent[2][2] = {
        {4, 60'000}, {251, 4}};  // by rank, to each: 8 rounds; and a part of one, to the first line of a unit
    const int other = 1 - me.rank;
    const std::vector<std::int64_t> given(sent[me.rank], sent[me.rank] + 2);
    const std::vector<std::int64_t> taken = {sent[0][me.rank], sent[1][me.rank]};
    const auto input = numbers(given[0] + given[1], me.rank);
    std::vector<float> output(static_cast<std::size_t>(taken[0] + taken[1]));
    auto exchange = operation_of(OpKind::kAllToAll, input.data(), output.data(), 0);
    exchange.input_counts = given;
    exchange.output_counts = taken;
    me.enqueue(exchange);
    me.finish();
    const auto theirs = numbers(sent[other][0] + sent[other][1], other);
    EXPECT_EQ(slice(output, other == 0 ? 0 : taken[0], taken[static_cast<std::size_t>(other)]),
              slice(theirs, me.rank == 0 ? 0 : sent[other][0], sent[other][me.rank]));
  });
}

// The peer wants the second message before it sends what this rank takes in the same window.
TEST(Peer, SendsTheSecondMessageBesideWhatItTakes) {
  on_ranks(peer, 2, [](Rank& me) {
    const std::int64_t count = 2 * kPieceOfFloats;
    const auto a = numbers(count, me.rank, 1), b = numbers(count, me.rank, 2);
    std::vector<float> first(static_cast<std::size_t>(count)), second(first), third(first);
    if (me.rank == 0) {
      const std::vector<Operation> window = {operation_of(OpKind::kSend, a.data(), nullptr, count, 1),
                                             operation_of(OpKind::kSend, b.data(), nullptr, count, 1),
                                             operation_of(OpKind::kReceive, nullptr, third.data(), count, 1)};
      me.route->enqueue(window, me.stream);
    } else {
      me.enqueue(operation_of(OpKind::kReceive, nullptr, first.data(), count, 0));
      me.enqueue(operation_of(OpKind::kReceive, nullptr, second.data(), count, 0));
      me.enqueue(operation_of(OpKind::kSend, a.data(), nullptr, count, 0));
    }
    me.finish();
    if (me.rank == 0) {
      EXPECT_EQ(third, numbers(count, 1, 1));
    } else {
      EXPECT_EQ(first, numbers(count, 0, 1));
      EXPECT_EQ(second, numbers(count, 0, 2));
    }
  });
}

// One rank aborts while the other has not begun: what that one finds then is right, or marked,
// never another call's.
void leaves_nothing_for_those_who_come_late(const MakeRoute& make) {
  constexpr std::pair<OpKind, bool> kCases[] = {{OpKind::kAllReduce, false},
                                                {OpKind::kAllReduce, true},
                                                {OpKind::kAllGather, false},
                                                {OpKind::kReceive, false}};
  for (const auto& [kind, in_place] : kCases) {
    ThreadGroup groups(2);
    std::atomic<bool> enqueued{false};  // by the one that comes late
    const auto errors = groups.run([&](int number, Communicator& group) {
      Rank me = make_rank(make, group, {.seed = static_cast<unsigned>(number + 1), .aborts = true});
      const std::int64_t count = 3 * kPieceOfFloats;
      constexpr unsigned kCalls = 4;
      std::vector<std::vector<float>> in, out;
      for (unsigned call = 0; call < kCalls; ++call) {
        in.push_back(numbers(count, me.rank, call));
        out.emplace_back(static_cast<std::size_t>(kind == OpKind::kAllGather ? 2 * count : count), 1.0f);
      }
      if (me.rank == 1)
        me.device->launch([] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }, me.stream);
      for (unsigned call = 0; call < kCalls; ++call) {
        const bool sends = kind == OpKind::kReceive && me.rank == 0;
        if (in_place) out[call] = in[call];
        me.enqueue(operation_of(sends ? OpKind::kSend : kind, in_place ? out[call].data() : in[call].data(),
                                out[call].data(), count, 1 - me.rank));
      }
      if (me.rank == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        while (!enqueued) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        me.route->abort("aborted by the test");
      } else {
        enqueued = true;
      }
      me.finish();
      for (unsigned call = 0; call < kCalls; ++call) {
        std::vector<float> want = numbers(count, 0, call);
        if (kind == OpKind::kAllReduce) want = sum(count, 2, call);
        if (kind == OpKind::kAllGather) {
          const auto other = numbers(count, 1, call);
          want.insert(want.end(), other.begin(), other.end());
        }
        for (std::size_t i = 0; i < want.size() && (kind != OpKind::kReceive || me.rank == 1); ++i)
          ASSERT_TRUE(std::isnan(out[call][i]) || out[call][i] == want[i])
              << name_of(kind) << " " << call << ": " << i;
      }
    });
    EXPECT_EQ(errors, std::vector<std::string>(2));
  }
}

TEST(Peer, AnAbortLeavesNothingForLateRanks) { leaves_nothing_for_those_who_come_late(peer); }
TEST(PeerByLl128, AnAbortLeavesNothingForLateRanks) { leaves_nothing_for_those_who_come_late(linked); }

// Rows of any width, in as many blocks as they need, and other calls between them.
TEST(Peer, SumsAndDividesByTheNorm) {
  for (const int size : {2, 3}) {
    on_ranks(peer, size, [](Rank& me) {
      for (const auto& [rows, row] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {1, 1}, {1, 1024}, {3, 7}, {4, 1000}, {9, 100}, {30, 102}, {2, 1}}) {
        const std::int64_t count = rows * row;
        auto x = numbers(count, me.rank, 1), other = numbers(count, me.rank, 2);
        const auto residual = numbers(count, 9), weight = numbers(row, 8), total = sum(count, me.size, 1);
        std::vector<float> normed(x.size()), summed(x.size());
        const RmsNorm norm{residual.data(), weight.data(), summed.data(), 1e-3};
        Operation call = operation_of(OpKind::kAllReduce, x.data(), normed.data(), count);
        call.norm = &norm;
        call.norm_row = row;
        ASSERT_TRUE(me.route->does_norm_of(call)) << rows << " of " << row;
        me.enqueue(call);
        me.enqueue(operation_of(OpKind::kAllReduce, other.data(), other.data(), count));
        me.finish();
        EXPECT_EQ(other, sum(count, me.size, 2));
        for (std::int64_t begin = 0; begin < count; begin += row) {
          double squares = 0;
          for (std::int64_t i = begin; i < begin + row; ++i) {
            const auto at = static_cast<std::size_t>(i);
            ASSERT_EQ(summed[at], total[at] + residual[at]) << at;
            squares += double{summed[at]} * summed[at];
          }
          const double factor = 1 / std::sqrt(squares / static_cast<double>(row) + 1e-3);
          for (std::int64_t i = begin; i < begin + row; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const double expected = summed[at] * factor * weight[static_cast<std::size_t>(i - begin)];
            ASSERT_NEAR(normed[at], expected, 1e-5 * std::abs(expected)) << at;
          }
        }
      }
    });
  }
}

// All ranks say the same of a call, whatever their own tensors are.
TEST(Peer, LeavesNormsThatItDoesNotDoToOthers) {
  on_ranks(peer, 2, [](Rank& me) {
    const auto does = [&](DType dtype, ReduceOp op, std::int64_t rows, std::int64_t row) {
      const RmsNorm norm{};
      Operation call = operation_of(OpKind::kAllReduce, nullptr, nullptr, rows * row);
      call.dtype = dtype;
      call.op = op;
      call.norm = &norm;
      call.norm_row = row;
      return me.route->does_norm_of(call);
    };
    EXPECT_TRUE(does(DType::kBFloat16, ReduceOp::kSum, 4, 2048));
    EXPECT_FALSE(does(DType::kBFloat16, ReduceOp::kSum, 4, 7)) << "a word would be of two rows";
    EXPECT_FALSE(does(DType::kBFloat16, ReduceOp::kSum, 4, 2050)) << "it is wider than a block's region";
    EXPECT_FALSE(does(DType::kBFloat16, ReduceOp::kSum, 5, 2048)) << "a block would have two rows";
    EXPECT_FALSE(does(DType::kBFloat16, ReduceOp::kSum, 33, 64))
        << "a block would have nine rows, one after another";
    EXPECT_FALSE(does(DType::kBFloat16, ReduceOp::kSum, 0, 2048));
    EXPECT_FALSE(does(DType::kBFloat16, ReduceOp::kSum, 4, 0));
    EXPECT_FALSE(does(DType::kBFloat16, ReduceOp::kAvg, 4, 2048));
    EXPECT_FALSE(does(DType::kInt32, ReduceOp::kSum, 4, 1024));
    EXPECT_FALSE(me.route->does_norm_of(operation_of(OpKind::kAllReduce, nullptr, nullptr, 4)));
  });
}

// As Options(max_ctas=) has it.
TEST(PeerLayout, LaunchesNoMoreBlocksThanItMay) {
  for (const int ranks : {2, 3, 4, 8, 16}) {
    for (const int most : {1, 2, 8, 40, 72, 288}) {
      const PeerLayout layout = PeerLayout::fitting(ranks, 32 << 20, /*linked=*/true, most, most);
      EXPECT_GE(layout.ll128_blocks, 1) << ranks;
      EXPECT_GE(layout.moving_ll128_blocks, 1) << ranks;
      // Of moves, one for each rank at least.
      EXPECT_LE(layout.moving_ll128_blocks * ranks, std::max(most, ranks)) << ranks;
      for (int blocks = 1; blocks <= layout.ll128_blocks; ++blocks) {
        const int spread = Ll128Slots::kThreads / layout.ll128_threads(blocks);
        EXPECT_LE(blocks * spread, most) << ranks;
        EXPECT_TRUE(spread == 4 || blocks * 2 * spread > most) << ranks;
      }
    }
    EXPECT_EQ(PeerLayout::fitting(ranks, 32 << 20, /*linked=*/true).ll128_threads(72),
              Ll128Slots::kFewestThreads);
  }
}

// Kernels of two groups would wait for each other behind kernels that find no multiprocessor: a
// kernel that waits leaves a third of them free, however its warps are spread.
TEST(PeerLayout, LeavesMultiprocessorsToOtherKernels) {
  for (const int multiprocessors : {1, 3, 20, 58, 84, 108, 132, 148}) {
    for (const int users : {1, 2}) {
      const GpuPeerInfo peer{
          .gpu = "gpu", .node = {}, .multiprocessors = multiprocessors, .unsupported_reasons = {}};
      std::vector<GpuPeerInfo> peers(static_cast<std::size_t>(users), peer);
      if (users == 1)
        peers.push_back(
            {.gpu = "other", .node = {}, .multiprocessors = multiprocessors, .unsupported_reasons = {}});
      const int most = World::of(peers).waiting_blocks;
      EXPECT_GE(most, 1);
      EXPECT_LE(most * users * 3, std::max(multiprocessors * 2, users * 3));
      const PeerLayout layout =
          PeerLayout::fitting(2, 32 << 20, /*linked=*/true, std::min(most, 72), PeerLayout::kAny, most);
      for (int blocks = 1; blocks <= layout.ll128_blocks; ++blocks)
        EXPECT_LE(blocks * (Ll128Slots::kThreads / layout.ll128_threads(blocks)), most) << multiprocessors;
      EXPECT_LE(layout.ll_blocks, most);
      EXPECT_LE(layout.moving_ll128_blocks, most);
    }
  }
  const PeerLayout hopper = PeerLayout::fitting(2, 32 << 20, /*linked=*/true, 72, PeerLayout::kAny, 88);
  EXPECT_EQ(hopper.ll128_threads(18), Ll128Slots::kFewestThreads) << "256 KiB";
  EXPECT_EQ(hopper.ll128_threads(72), Ll128Slots::kThreads);
}

TEST(PeerLayout, FitsIntoItsMemoryAndKeepsTheRegionsOfAllRanksApart) {
  for (const auto& [ranks, linked] : std::vector<std::pair<int, bool>>{{2, false},
                                                                       {3, false},
                                                                       {8, false},
                                                                       {16, false},
                                                                       {2, true},
                                                                       {3, true},
                                                                       {4, true},
                                                                       {8, true},
                                                                       {16, true}}) {
    const PeerLayout layout = PeerLayout::fitting(ranks, 32 << 20, linked);
    const auto at = layout.offsets();
    EXPECT_LE(layout.bytes(), std::size_t{linked ? 56u : 48u} << 20) << ranks;
    EXPECT_GE(layout.part_bytes, 8u << 10);
    EXPECT_GE(at.pairs - at.ll, layout.ll_shape().bytes());
    EXPECT_GE(at.norms - at.pairs, layout.pair_shape().bytes());
    EXPECT_GE(at.ll128 - at.norms, layout.norm_shape().bytes());
    EXPECT_GE(at.flags - at.ll128, static_cast<std::size_t>(layout.ll128_blocks) * 16 * (8 << 10));
    EXPECT_EQ(layout.ll128_blocks > 0, linked);
    if (linked) {
      EXPECT_GE(layout.moving_ll128_blocks, 1);
      EXPECT_LE(layout.moving_ll128_blocks, layout.ll128_blocks);
    }
    const auto room = [&](int blocks) { return 4 * static_cast<std::size_t>(blocks) * layout.part_bytes; };
    EXPECT_GE(at.one_shot - at.two_shot,
              layout.reduces_two_shot() && !layout.reduces_by_ll128() ? room(layout.two_shot_blocks) : 0);
    EXPECT_GE(at.exchange - at.one_shot, layout.reduces_by_ll128() ? 0 : room(layout.one_shot_blocks));
    EXPECT_GE(at.messages - at.exchange, layout.moves_by_ll128() ? 0 : room(layout.exchange_blocks));
    EXPECT_GE(at.end - at.messages, room(layout.message_blocks));
    for (int owner = 0; owner < ranks; ++owner) {
      std::set<std::size_t> begins;
      for (int source = 0; source < ranks; ++source)
        if (source != owner) begins.insert(layout.region(owner, source));
      EXPECT_EQ(begins.size(), static_cast<std::size_t>(ranks - 1));
      EXPECT_EQ(*begins.begin(), 0u);
      EXPECT_EQ(*begins.rbegin() + at.end, layout.bytes());
    }
  }
}

}  // namespace
}  // namespace altorch
