// SPDX-License-Identifier: BSD-3-Clause
// Copies, flags and streams of a real GPU. Nothing waits for what is enqueued later or for the
// host, so that tools may serialise it (make sanitize-gpu); cuda_waits_test.cpp has the rest.
#include <sys/mman.h>

#include "device/expected.h"
#include "support/gpu_test.h"

namespace altorch {
namespace {

class CudaStreams : public GpuTest {
 protected:
  static void fill(std::byte* memory, std::size_t bytes, unsigned seed) {
    const Bytes data = elements_of(DType::kUInt8, bytes, seed);
    std::memcpy(memory, data.data(), bytes);
  }
};

TEST(CudaUnsupported, ForAGpuThatIsNotThere) {
  EXPECT_TRUE(CudaDevice::unsupported_reason(1000).has_value());
  EXPECT_ANY_THROW(CudaDevice(1000));
  EXPECT_EQ(CudaDevice::identity(1000), "device 1000");
}

TEST_F(CudaStreams, TheGpuHasAName) {
  EXPECT_EQ(CudaDevice::identity(0).size(), 32u);
  EXPECT_EQ(CudaDevice::identity(0).find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST_F(CudaStreams, AGpuOfTwoHostsIsTwoGpusAsForNccl) {
  const std::string plain = CudaDevice::identity(0);
  setenv("NCCL_HOSTID", "a", 1);
  EXPECT_EQ(CudaDevice::identity(0), plain + "/a");
  unsetenv("NCCL_HOSTID");
}

TEST_F(CudaStreams, PinnedMemoryIsZeroAtFirst) {
  constexpr std::size_t kBytes = 100'001;
  const PinnedMemory memory = device().pin(kBytes);
  EXPECT_EQ(std::count(memory.get(), memory.get() + kBytes, std::byte{0}),
            static_cast<std::ptrdiff_t>(kBytes));
}

TEST_F(CudaStreams, CopiesArriveAsTheyWere) {
  constexpr std::size_t kBytes = (1 << 20) + 64;
  const Stream stream = gpu().make_stream();
  const auto one = device().allocate(kBytes), other = device().allocate(kBytes);
  const PinnedMemory from = device().pin(kBytes), to = device().pin(kBytes);
  fill(from.get(), kBytes, 1);
  CudaDevice shared(0, /*shared=*/true);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{997},
                                  std::size_t{4097}, std::size_t{31 << 10}, kBytes - 64}) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{3}}) {
      CudaDevice& copier = shift ? shared : device();
      fill(to.get(), kBytes, 2);
      Bytes expected = elements_of(DType::kUInt8, kBytes, 2);
      std::memcpy(expected.data() + shift, from.get() + 2 * shift, bytes);
      copier.copy_to_device(one.get() + shift, from.get() + 2 * shift, bytes, stream);
      device().copy_on_device(other.get(), one.get() + shift, bytes, stream);
      device().copy_to_host(to.get() + shift, other.get(), bytes, stream);
      ASSERT_TRUE(gpu().finish(stream));
      EXPECT_EQ(std::memcmp(to.get(), expected.data(), kBytes), 0) << bytes << " bytes, shifted by " << shift;
    }
  }
}

// As ranks share it: a mapping that is there already.
TEST_F(CudaStreams, ExistingMemoryCanBePinned) {
  constexpr std::size_t kBytes = 1 << 20;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::shared_ptr<std::byte> mapping(static_cast<std::byte*>(mapped),
                                           [](std::byte* memory) { munmap(memory, kBytes); });
  for (const unsigned seed : {1u, 2u}) {  // again after it was let go
    const PinnedMemory memory = device().pin(mapping, kBytes);
    ASSERT_EQ(memory.get(), mapping.get());
    const Stream stream = gpu().make_stream();
    const auto on_gpu = device().allocate(kBytes / 2);
    fill(memory.get(), kBytes / 2, seed);
    device().copy_to_device(on_gpu.get(), memory.get(), kBytes / 2, stream);
    device().copy_to_host(memory.get() + kBytes / 2, on_gpu.get(), kBytes / 2, stream);
    ASSERT_TRUE(gpu().finish(stream));
    EXPECT_EQ(std::memcmp(memory.get(), memory.get() + kBytes / 2, kBytes / 2), 0);
  }
}

TEST_F(CudaStreams, AFlagIsRaisedAfterWhatTheStreamHolds) {
  constexpr std::size_t kBytes = 16 << 20;
  const Stream stream = gpu().make_stream();
  const auto on_gpu = device().allocate(kBytes);
  const PinnedMemory from = device().pin(kBytes), to = device().pin(kBytes);
  Flag& flag = gpu().flags()[0];
  for (std::uint32_t round = 1; round <= 3; ++round) {
    fill(from.get(), kBytes, round);
    device().copy_to_device(on_gpu.get(), from.get(), kBytes, stream);
    device().copy_to_host(to.get(), on_gpu.get(), kBytes, stream);
    device().raise(flag, round, stream);
    while (!flag.reached(round)) std::this_thread::yield();  // the watchdog raises it as well
    EXPECT_EQ(std::memcmp(to.get(), from.get(), kBytes), 0) << "round " << round;
    ASSERT_TRUE(gpu().finish(stream));
    EXPECT_EQ(flag.count, round);
  }
}

TEST_F(CudaStreams, AFlagThatIsReachedHoldsNothingUp) {
  const Stream stream = gpu().make_stream();
  const std::pair<std::uint32_t, std::uint32_t> is_and_wanted[] = {
      {0, 0}, {5, 5}, {7, 5}, {0x80000000u, 0x7FFFFFFFu}, {3, 0xFFFFFFF0u}};  // the last has come round
  int index = 0;
  for (const auto& [is, wanted] : is_and_wanted) {
    Flag& flag = gpu().flags()[static_cast<std::size_t>(index++)];
    flag.count = is;
    device().wait_for_flag(flag, wanted, stream);
    ASSERT_TRUE(gpu().finish(stream)) << is << " and " << wanted;
  }
}

TEST_F(CudaStreams, AStreamComesAfterWhatAnotherHolds) {
  constexpr std::size_t kBytes = 8 << 20;
  const Stream first = gpu().make_stream(), second = gpu().make_stream();
  const auto one = device().allocate(kBytes), other = device().allocate(kBytes);
  const PinnedMemory from = device().pin(kBytes), to = device().pin(kBytes);
  constexpr std::size_t kRounds = 8, kPart = kBytes / kRounds;
  fill(from.get(), kBytes, 3);
  // The same two buffers in every round: what comes too early or too late takes another round's
  // bytes.
  for (std::size_t round = 0; round < kRounds; ++round) {
    device().wait_for_stream(first, second);
    device().copy_to_device(one.get(), from.get() + round * kPart, kPart, first);
    device().copy_on_device(other.get(), one.get(), kPart, first);
    device().wait_for_stream(second, first);
    device().copy_to_host(to.get() + round * kPart, other.get(), kPart, second);
  }
  ASSERT_TRUE(gpu().finish(second));
  EXPECT_EQ(std::memcmp(to.get(), from.get(), kBytes), 0);
}

}  // namespace
}  // namespace altorch
