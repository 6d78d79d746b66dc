// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/host_staged.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "gpu/host_staged/conformance.h"
#include "rendezvous/store_allgather.h"
#include "support/route_setting.h"

namespace altorch {
namespace {

using namespace staged;  // NOLINT

std::unique_ptr<GpuRoute> make_shared(std::unique_ptr<Device> device, Communicator& group, bool own_gpus) {
  const BoardLayout layout{
      .ranks = group.size(), .slots = 4, .slot_bytes = kPiece, .message_slots = 2, .message_bytes = kPiece};
  auto memory = device->pin(memory_of(group, layout.bytes()), layout.bytes());
  auto scratch = device->allocate(HostStaged::scratch_bytes(layout));
  store_allgather(group.store(), "board", group.rank(), group.size(), std::chrono::seconds(20),
                  "to share its memory");
  return std::make_unique<HostStaged>(std::move(device), Board(std::move(memory), layout, group.rank()),
                                      std::move(scratch), group.rank(), own_gpus);
}
// With a GPU each, small collectives take one kernel.
std::unique_ptr<GpuRoute> shared(std::unique_ptr<Device> device, Communicator& group) {
  return make_shared(std::move(device), group, /*own_gpus=*/true);
}
std::unique_ptr<GpuRoute> shared_on_one_gpu(std::unique_ptr<Device> device, Communicator& group) {
  return make_shared(std::move(device), group, /*own_gpus=*/false);
}

TEST(HostStaged, ReducesAndBroadcastsVectorsOfAnySize) { vectors_of_any_size(shared); }
TEST(HostStaged, GathersAndScattersBlocksEvenAndUneven) { blocks_even_and_uneven(shared); }
TEST(HostStaged, ExchangesUnevenBlocksLargerThanItsMemory) { exchanges_larger_than_its_memory(shared); }
TEST(HostStaged, GathersAtAndScattersFromARoot) { gathers_and_scatters_at_a_root(shared); }
TEST(HostStaged, CarriesMessagesOfOneWindowInAnyOrder) { windows_in_any_order(shared); }
TEST(HostStaged, BehavesLikeAKernelInItsStream) { behaves_like_a_kernel(shared); }
TEST(HostStaged, ReducesTypesByOperators) { types_and_operators(shared); }
TEST(HostStaged, ServesRanksThatShareAGpu) {
  vectors_of_any_size(shared_on_one_gpu);
  blocks_even_and_uneven(shared_on_one_gpu);
  types_and_operators(shared_on_one_gpu);
}
TEST(HostStaged, CarriesCallsByTheProtocolThatIsAskedFor) {
  for (const char* protocol : {"ll", "pieces", "messages"}) {
    const RouteSetting setting("cuda=host_staged/" + std::string(protocol));
    vectors_of_any_size(shared);
    many_exchanges(shared);
  }
}
TEST(StagedProtocols, FollowTheSizeAndTheGpus) {
  const BoardLayout layout = BoardLayout::fitting(4, 64 << 20);
  const auto name = [&](OpKind kind, std::int64_t floats, bool co_resident, std::string_view asked = {}) {
    const Operation call = operation_of(kind, nullptr, nullptr, floats);
    return protocol_of(staged_protocols(), call, {layout, co_resident}, asked).name;
  };
  EXPECT_EQ(name(OpKind::kAllReduce, 1000, true), "ll");
  EXPECT_EQ(name(OpKind::kAllReduce, 1000, false), "pieces");
  EXPECT_EQ(name(OpKind::kAllReduce, 1 << 20, true), "pieces");
  EXPECT_EQ(name(OpKind::kAllReduce, 1000, true, "pieces"), "pieces");
  EXPECT_EQ(name(OpKind::kAllReduce, 1 << 20, true, "ll"), "pieces");
  EXPECT_EQ(name(OpKind::kAllToAll, 8, true), "pairs");
  EXPECT_EQ(name(OpKind::kAllToAll, 8, true, "messages"), "messages");
  EXPECT_EQ(name(OpKind::kAllToAll, 8, false), "messages");
  EXPECT_EQ(name(OpKind::kSend, 8, true), "messages");
}
TEST(HostStaged, CarriesSmallCollectivesOneAfterAnother) { many_small_ones(shared); }
TEST(HostStaged, ExchangesBlocksOfAnySizeOneAfterAnother) {
  many_exchanges(shared);
  many_exchanges(shared_on_one_gpu);
}
// A little before its counters of 32 bits come round: 2^32 is no multiple of its six slots.
std::unique_ptr<GpuRoute> shared_for_long(std::unique_ptr<Device> device, Communicator& group) {
  constexpr std::uint64_t kCounted = 0x1FFFFFFF0;
  const BoardLayout layout{
      .ranks = group.size(), .slots = 6, .slot_bytes = kPiece, .message_slots = 2, .message_bytes = kPiece};
  auto memory = device->pin(memory_of(group, layout.bytes()), layout.bytes());
  auto scratch = device->allocate(HostStaged::scratch_bytes(layout));
  Board board(std::move(memory), layout, group.rank());
  const auto begin = static_cast<std::uint32_t>(kCounted);
  for (std::size_t slot = 0; slot < layout.slots; ++slot) {
    Board::Post& mine = board.post(group.rank(), slot);
    mine.posted.count = mine.reduced.count = mine.done.count = begin;
  }
  for (int peer = 0; peer < group.size(); ++peer) {
    for (std::size_t slot = 0; slot < layout.message_slots && peer != group.rank(); ++slot) {
      board.message_slot(group.rank(), peer, slot).filled.count = begin;
      board.message_slot(peer, group.rank(), slot).emptied.count = begin;
    }
  }
  store_allgather(group.store(), "board", group.rank(), group.size(), std::chrono::seconds(20),
                  "to share its memory");
  return std::make_unique<HostStaged>(std::move(device), std::move(board), std::move(scratch), group.rank(),
                                      /*own_gpus=*/false, kCounted);
}
TEST(HostStaged, GoesOnWhenItsCountersComeRound) {
  vectors_of_any_size(shared_for_long);
  blocks_even_and_uneven(shared_for_long);
  exchanges_larger_than_its_memory(shared_for_long);
}
TEST(HostStaged, LetsStreamsGoOnWhenItsCountersComeRound) { lets_streams_go_on(shared_for_long); }

TEST(HostStaged, LetsStreamsGoOnWhenAnotherRankNeverComes) { lets_streams_go_on(shared); }
TEST(HostStaged, MarksResultsThatAreAborted) { marks_aborted_results(shared); }
TEST(HostStaged, MarksResultsThatAreAbortedOnASharedGpu) { marks_aborted_results(shared_on_one_gpu); }

}  // namespace
}  // namespace altorch
