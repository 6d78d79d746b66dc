#include "engine/host_staged/shared.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "common/meeting.h"
#include "engine/host_staged/conformance.h"

namespace altorch {
namespace {

using namespace staged;  // NOLINT

// The ranks are threads, and one mapping serves all: the thread sanitizer knows memory by its address.
PinnedMemory memory_of(Communicator& group, std::size_t bytes) {
  static std::mutex mutex;
  static std::map<const KeyValueStore*, std::weak_ptr<std::byte>> memories;
  const std::lock_guard lock(mutex);
  std::weak_ptr<std::byte>& known = memories[&group.store()];
  if (auto found = known.lock()) return found;
  auto* fresh = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  std::memset(fresh, 0, bytes);
  PinnedMemory made(fresh, [](std::byte* memory) { std::free(memory); });
  known = made;
  return made;
}

std::unique_ptr<GpuRoute> make_shared(std::unique_ptr<Device> device, Communicator& group, bool own_gpus) {
  const BoardLayout layout{
      .ranks = group.size(), .slots = 4, .slot_bytes = kPiece, .letter_slots = 2, .letter_bytes = kPiece};
  auto memory = device->pin(memory_of(group, layout.bytes()), layout.bytes());
  auto scratch = device->allocate(Shared::scratch_bytes(layout));
  meet(group.store(), "board", group.rank(), group.size(), std::chrono::seconds(20), "to share its memory");
  return std::make_unique<Shared>(std::move(device), Board(std::move(memory), layout, group.rank()),
                                  std::move(scratch), group.rank(), own_gpus);
}
// With a GPU each, small collectives take one kernel.
std::unique_ptr<GpuRoute> shared(std::unique_ptr<Device> device, Communicator& group) {
  return make_shared(std::move(device), group, /*own_gpus=*/true);
}
std::unique_ptr<GpuRoute> shared_on_one_gpu(std::unique_ptr<Device> device, Communicator& group) {
  return make_shared(std::move(device), group, /*own_gpus=*/false);
}

TEST(Shared, ReducesAndBroadcastsVectorsOfAnySize) { vectors_of_any_size(shared); }
TEST(Shared, GathersAndScattersBlocksEvenAndUneven) { blocks_even_and_uneven(shared); }
TEST(Shared, ExchangesUnevenBlocksLargerThanItsMemory) { exchanges_larger_than_its_memory(shared); }
TEST(Shared, GathersAtAndScattersFromARoot) { gathers_and_scatters_at_a_root(shared); }
TEST(Shared, CarriesMessagesOfOneWindowInAnyOrder) { windows_in_any_order(shared); }
TEST(Shared, BehavesLikeAKernelInItsStream) { behaves_like_a_kernel(shared); }
TEST(Shared, ReducesTypesByOperators) { types_and_operators(shared); }
TEST(Shared, ServesRanksThatShareAGpu) {
  vectors_of_any_size(shared_on_one_gpu);
  blocks_even_and_uneven(shared_on_one_gpu);
  types_and_operators(shared_on_one_gpu);
}
TEST(Shared, CarriesSmallCollectivesOneAfterAnother) { many_small_ones(shared); }
TEST(Shared, ExchangesBlocksOfAnySizeOneAfterAnother) {
  many_exchanges(shared);
  many_exchanges(shared_on_one_gpu);
}
TEST(Shared, LetsStreamsGoOnWhenAnotherRankNeverComes) { lets_streams_go_on(shared); }
TEST(Shared, MarksResultsThatAreGivenUp) { marks_what_is_given_up(shared); }
TEST(Shared, MarksResultsThatAreGivenUpOnASharedGpu) { marks_what_is_given_up(shared_on_one_gpu); }

}  // namespace
}  // namespace altorch
