// SPDX-License-Identifier: BSD-3-Clause
// Streams of a real GPU that wait for the host or for what is enqueued later. Where tools serialise
// what is enqueued, these tests would never end.
#include <algorithm>
#include <cstring>

#include "support/gpu_test.h"

namespace altorch {
namespace {

// Long enough for anything that does not wait.
void dawdle() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

class CudaWaits : public GpuTest {
 protected:
  static constexpr std::size_t kBytes = 1 << 20;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    first_ = gpu().make_stream();
    second_ = gpu().make_stream();
    from_ = device().pin(kBytes);
    to_ = device().pin(kBytes);
    on_gpu_ = device().allocate(kBytes);
  }
  Flag& gate() { return gpu().flags()[0]; }
  Flag& reached() { return gpu().flags()[1]; }
  // All of them the last byte that the host wrote before it opened the gate.
  bool arrived(std::byte byte) const {
    return std::all_of(to_.get(), to_.get() + kBytes, [&](std::byte found) { return found == byte; });
  }

  Stream first_ = nullptr, second_ = nullptr;
  PinnedMemory from_, to_;
  std::shared_ptr<std::byte> on_gpu_;
};

TEST_F(CudaWaits, AFlagHoldsTheStreamUntilTheHostRaisesIt) {
  const std::pair<std::uint32_t, std::uint32_t> is_and_wanted[] = {
      {0, 1}, {4, 9}, {0x7FFFFFFFu, 0x80000000u}, {0xFFFFFFF0u, 3}};
  std::uint32_t round = 0;
  for (const auto& [is, wanted] : is_and_wanted) {
    ++round;
    gate().count = is;
    device().wait_for_flag(gate(), wanted, first_);
    device().copy_to_device(on_gpu_.get(), from_.get(), kBytes, first_);
    device().copy_to_host(to_.get(), on_gpu_.get(), kBytes, first_);
    device().raise(reached(), round, first_);
    dawdle();
    EXPECT_FALSE(reached().reached(round)) << is << " and " << wanted;
    std::memset(from_.get(), static_cast<int>(round), kBytes);
    gate().raise(wanted);
    ASSERT_TRUE(gpu().finish(first_)) << is << " and " << wanted;
    EXPECT_TRUE(reached().reached(round));
    EXPECT_TRUE(arrived(static_cast<std::byte>(round))) << is << " and " << wanted;
  }
}

TEST_F(CudaWaits, AStreamIsHeldByAnotherThatIsHeld) {
  device().wait_for_flag(gate(), 1, first_);
  device().copy_to_device(on_gpu_.get(), from_.get(), kBytes, first_);
  device().wait_for_stream(second_, first_);
  device().copy_to_host(to_.get(), on_gpu_.get(), kBytes, second_);
  device().raise(reached(), 1, second_);
  dawdle();
  EXPECT_FALSE(reached().reached(1));
  std::memset(from_.get(), 7, kBytes);
  gate().raise(1);
  ASSERT_TRUE(gpu().finish(second_));
  EXPECT_TRUE(arrived(std::byte{7}));
}

// The second stream takes from the one place what the first puts there, round by round.
TEST_F(CudaWaits, StreamsHandOverByFlags) {
  constexpr std::uint32_t kRounds = 100;
  constexpr std::size_t kPart = kBytes / 128;
  for (std::size_t i = 0; i < kBytes; ++i) from_.get()[i] = static_cast<std::byte>(i / kPart);
  Flag &filled = gpu().flags()[0], &emptied = gpu().flags()[1];
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    device().wait_for_flag(filled, round, second_);  // before anything that raises it
    device().copy_to_host(to_.get() + round * kPart, on_gpu_.get(), kPart, second_);
    device().raise(emptied, round, second_);
    device().wait_for_flag(emptied, round - 1, first_);
    device().copy_to_device(on_gpu_.get(), from_.get() + round * kPart, kPart, first_);
    device().raise(filled, round, first_);
  }
  ASSERT_TRUE(gpu().finish(second_));
  EXPECT_EQ(std::memcmp(to_.get() + kPart, from_.get() + kPart, kRounds * kPart), 0);
}

}  // namespace
}  // namespace altorch
