// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/host_relay.h"

#include <gtest/gtest.h>

#include "gpu/host_staged/conformance.h"

namespace altorch {
namespace {

using namespace staged;  // NOLINT

const HostRelayOptions kLl{.pinned_bytes = 8 * kPiece, .slots = 4, .timeout = std::chrono::seconds(20)};

std::unique_ptr<GpuRoute> relay(std::unique_ptr<Device> device, Communicator& group) {
  return std::make_unique<HostRelay>(std::move(device), group.shared_from_this(), kLl);
}

TEST(HostRelay, ReducesAndBroadcastsVectorsOfAnySize) { vectors_of_any_size(relay); }
TEST(HostRelay, GathersAndScattersBlocksEvenAndUneven) { blocks_even_and_uneven(relay); }
TEST(HostRelay, ExchangesUnevenBlocksLargerThanItsMemory) { exchanges_larger_than_its_memory(relay); }
TEST(HostRelay, GathersAtAndScattersFromARoot) { gathers_and_scatters_at_a_root(relay); }
TEST(HostRelay, CarriesMessagesOfOneWindowInAnyOrder) { windows_in_any_order(relay); }
TEST(HostRelay, BehavesLikeAKernelInItsStream) { behaves_like_a_kernel(relay); }
TEST(HostRelay, ReducesTypesByOperators) { types_and_operators(relay); }
TEST(HostRelay, CarriesSmallCollectivesOneAfterAnother) { many_small_ones(relay); }
TEST(HostRelay, LetsStreamsGoOnWhenAnotherRankNeverComes) { lets_streams_go_on(relay); }

TEST(HostRelay, TakesNoMorePinnedMemoryThanItMay) {
  // One rank gets a quarter only: all cut their messages alike.
  constexpr std::size_t kAll = 8 << 20, kQuarter = 2 * 4 * ((256 << 10) + 3 * sizeof(Flag)) + sizeof(Flag);
  ThreadGroup groups(2);
  const auto errors = groups.run([&](int number, Communicator& group) {
    const auto make = [&](std::unique_ptr<Device> device, Communicator& carrier) {
      const HostRelayOptions options{.pinned_bytes = kAll, .slots = 4, .timeout = std::chrono::seconds(20)};
      return std::make_unique<HostRelay>(std::move(device), carrier.shared_from_this(), options);
    };
    FakeDeviceOptions options;
    if (number == 1) options.pinned_limit = kQuarter;
    Rank me = make_rank(make, group, options);
    const std::int64_t count = 1 << 20;
    auto x = numbers(count, number);
    me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), count));
    std::vector<float> all(static_cast<std::size_t>(2 * count));
    const auto mine = numbers(count, number);
    me.enqueue(operation_of(OpKind::kAllGather, mine.data(), all.data(), count));
    me.finish();
    EXPECT_EQ(x, sum(count, 2));
    EXPECT_EQ(slice(all, count, count), numbers(count, 1));
    EXPECT_LE(me.device->pinned_bytes(), number == 0 ? kAll + 4096 : kQuarter);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(HostRelay, MarksResultsThatAreAborted) { marks_aborted_results(relay); }

// Closes the group when so many copies to the host are enqueued: the next piece is refused.
class ClosingDevice : public FakeDevice {
 public:
  ClosingDevice(FakeDeviceOptions options, Communicator& group, int copies)
      : FakeDevice(options), group_(group), copies_(copies) {}
  void copy_to_host(void* host, const void* device, std::size_t bytes, Stream stream) override {
    FakeDevice::copy_to_host(host, device, bytes, stream);
    if (--copies_ == 0) group_.close("the test closed it");
  }

 private:
  Communicator& group_;
  int copies_;
};

TEST(HostRelay, WritesNothingBehindACallThatRaised) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "copies of a call that was aborted may overlap: nothing reads what they leave";
#endif
  ThreadGroup groups(2);
  const auto errors = groups.run([&](int number, Communicator& group) {
    FakeDeviceOptions options;
    options.seed = static_cast<unsigned>(number + 1);
    auto device = std::make_unique<ClosingDevice>(options, group, 6);
    FakeDevice* kept = device.get();
    const Stream stream = device->make_stream();
    HostRelay route(std::move(device), group.shared_from_this(), kLl);
    const std::int64_t count = 32 * kPieceOfFloats;
    auto x = numbers(count, number);
    const auto call = operation_of(OpKind::kAllReduce, x.data(), x.data(), count);
    EXPECT_THROW(route.enqueue({&call, 1}, stream), Error);
    route.abort("the test aborts");
    // Memory that the caller frees is used again in the order of this stream.
    ASSERT_TRUE(kept->synchronize(stream));
    std::fill(x.begin(), x.end(), -1.0f);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_EQ(x, std::vector<float>(static_cast<std::size_t>(count), -1.0f));
  });
  for (const std::string& error : errors) EXPECT_TRUE(error.empty()) << error;
}

// Where processes share a GPU, a kernel waits until it switches between them.
TEST(HostRelay, NeedsNoKernelForSmallResults) {
  on_ranks(relay, 3, [](Rank& me) {
    const std::int64_t count = 1000, long_count = 20 * kPieceOfFloats;
    std::vector<float> x(static_cast<std::size_t>(long_count), 1.0f),
        all(static_cast<std::size_t>(3 * count));
    std::vector<float> blocks(all.size(), 1.0f);
    me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), count));
    me.enqueue(operation_of(OpKind::kBroadcast, x.data(), x.data(), count, 1));
    me.enqueue(operation_of(OpKind::kAllGather, x.data(), all.data(), count));
    me.enqueue(operation_of(OpKind::kReduceScatter, all.data(), x.data(), count));
    me.enqueue(operation_of(OpKind::kAllToAll, all.data(), blocks.data(), count));
    me.finish();
    EXPECT_EQ(me.device->poisons(), 0);
    for (const float value : blocks) ASSERT_EQ(value, 3.0f);
    EXPECT_EQ(slice(x, 0, count), std::vector<float>(static_cast<std::size_t>(count), 9.0f));
    me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), long_count));
    EXPECT_EQ(me.device->poisons(), 1);
    me.finish();
  });
}

// Pieces of 64 KiB of a longer vector: those of both ranks are alike.
TEST(HostRelay, TellsPiecesOfDifferentOperationsApart) {
  ThreadGroup groups(2);
  const auto errors = groups.run([&](int number, Communicator& group) {
    Rank me = make_rank(relay, group, {.seed = 7, .aborts = true});
    const std::int64_t count = (number == 0 ? 4 : 8) * kPieceOfFloats;
    std::vector<float> x(static_cast<std::size_t>(count), 1.0f);
    Operation operation = operation_of(OpKind::kAllReduce, x.data(), x.data(), count);
    operation.timeout = std::chrono::seconds(3);
    me.enqueue(operation);
    me.finish();
    ASSERT_TRUE(me.route->failure());
    for (const float value : x) ASSERT_TRUE(std::isnan(value));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(HostRelay, ReportsThatTheRanksDisagree) {
  ThreadGroup groups(2);
  const auto errors = groups.run([&](int number, Communicator& group) {
    Rank me = make_rank(relay, group, {.seed = 7, .aborts = true});
    std::vector<float> x(100, 1.0f);
    me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), number == 0 ? 100 : 50));
    me.finish();
    const auto failure = me.route->failure();
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->kind(), ErrorKind::kMismatch);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// MPI may still write to what it could not withdraw. At 0dff7ae the memory was given back all the
// same, and a process whose ranks had disagreed died of it now and then.
TEST(HostRelay, KeepsTheMemoryThatItsCarrierHasNotGivenBack) {
  for (const bool keeps : {false, true}) {
    ThreadGroup groups(2, {.keeps_cancelled = keeps});
    std::shared_ptr<const std::atomic<std::size_t>> pinned;
    const auto errors = groups.run([&](int number, Communicator& group) {
      Rank me = make_rank(relay, group, {.aborts = true});
      if (number == 1) return;  // never calls
      pinned = me.device->pinned_counter();
      std::vector<float> x(100, 1.0f);
      me.enqueue(operation_of(OpKind::kAllReduce, x.data(), x.data(), 100));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that it is under way
      me.route->abort("aborted by the test");
      me.finish();
      for (const float value : x) EXPECT_TRUE(std::isnan(value));
    });
    EXPECT_EQ(errors, std::vector<std::string>(2));
    EXPECT_EQ(*pinned > 0, keeps);
  }
}

}  // namespace
}  // namespace altorch
