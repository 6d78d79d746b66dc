#include "engine/peer/peer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "common/meeting.h"
#include "engine/host_staged/conformance.h"

namespace altorch {
namespace {

using namespace staged;  // NOLINT

// What the ranks, which are threads, leave for each other.
struct Left {
  std::mutex mutex;
  std::map<std::pair<const KeyValueStore*, int>, std::weak_ptr<std::byte>> memory;
};
std::shared_ptr<std::byte> left_by(Communicator& group, int rank, const std::shared_ptr<std::byte>& own) {
  static auto* left = new Left();
  const std::lock_guard lock(left->mutex);
  auto& entry = left->memory[{&group.store(), rank}];
  if (own && entry.expired()) entry = own;
  return entry.lock();
}

std::unique_ptr<GpuRoute> make_peer(std::unique_ptr<Device> device, Communicator& group, std::size_t small) {
  const int rank = group.rank(), size = group.size();
  const PeerLayout layout{.ranks = size,
                          .small_bytes = small,
                          .pair_bytes = small,
                          .part_bytes = 8 << 10,
                          .reduce_blocks = 4,
                          .move_blocks = 2};
  const auto own = left_by(group, rank, device->allocate(layout.bytes()));
  PeerRoute::Memory memory;
  memory.note = left_by(group, -1, device->allocate(4096));
  meet(group.store(), "memory", rank, size, std::chrono::seconds(20), "to share its memory");
  for (int peer = 0; peer < size; ++peer) memory.of.push_back(left_by(group, peer, nullptr));
  meet(group.store(), "mapped", rank, size, std::chrono::seconds(20), "to share its memory");
  return std::make_unique<PeerRoute>(std::move(device), std::move(memory), layout, rank);
}
std::unique_ptr<GpuRoute> peer(std::unique_ptr<Device> device, Communicator& group) {
  return make_peer(std::move(device), group, 4 << 10);
}

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
TEST(Peer, MarksResultsThatAreGivenUp) { marks_what_is_given_up(peer); }

TEST(PeerLayout, FitsIntoItsMemoryAndKeepsEverybodysRegionsApart) {
  for (const int ranks : {2, 3, 8, 16}) {
    const PeerLayout layout = PeerLayout::fitting(ranks, 32 << 20);
    const auto at = layout.offsets();
    EXPECT_LE(layout.bytes(), std::size_t{48} << 20) << ranks;
    EXPECT_GE(layout.part_bytes, 8u << 10);
    EXPECT_GE(at.pairs - at.small, layout.small_shape().bytes());
    EXPECT_GE(at.flags - at.pairs, layout.pair_shape().bytes());
    EXPECT_GE(at.moves - at.reductions,
              4 * static_cast<std::size_t>(layout.reduce_blocks) * layout.part_bytes);
    EXPECT_GE(at.end - at.moves, 4 * static_cast<std::size_t>(layout.move_blocks) * layout.part_bytes);
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
