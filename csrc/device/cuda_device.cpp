// SPDX-License-Identifier: BSD-3-Clause
#include "device/cuda_device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/rounding.h"
#include "device/cuda_driver.h"
#include "device/cuda_runtime.h"

namespace altorch {
namespace {

using cuda::capability_of;
using cuda::DevicePtr;
using cuda::driver;

// Copies from the host of less than this the driver leaves to the multiprocessors, unless they are
// of several rows: 274 us against 10 on an H200 that two processes share. Larger ones go by a copy
// engine, and so do all copies to the host; those on the device never do.
constexpr std::size_t kLeftToMultiprocessors = 32 << 10;

constexpr std::int64_t kThreads = 512;  // of a block, at most
static_assert(Ll128Slots::kThreads == kThreads);

// A number of equal rows, or 0.
std::size_t rows_of(std::size_t bytes) {
  for (std::size_t rows = 2; rows <= 64 && rows <= bytes; ++rows) {
    if (bytes % rows == 0) return rows;
  }
  return 0;
}

DevicePtr address(const void* memory) { return reinterpret_cast<DevicePtr>(memory); }

// As it is over NVLink, and not over PCIe.
bool has_atomics_on(int index, int peer) {
  int able = 0;
  return driver().peer_attribute(&able, cuda::kNativeAtomicSupported, index, peer) == cuda::kSuccess && able;
}

}  // namespace

std::optional<std::string> CudaDevice::unsupported_reason(int index) {
  const cuda::Driver& cuda = driver();
  if (cuda.missing) return cuda.missing;
  int able = 0;
  if (cuda.device_attribute(&able, cuda::kCanUse64BitStreamMemOps, index) != cuda::kSuccess || !able) {
    return "GPU " + std::to_string(index) + " cannot wait for memory in a stream (cuStreamWaitValue32)";
  }
  return std::nullopt;
}

std::string CudaDevice::identity(int index) {
  cuda::Uuid uuid{};
  if (driver().missing || driver().device_uuid(&uuid, index) != cuda::kSuccess)
    return "device " + std::to_string(index);
  std::string text;
  char digits[3];
  for (const unsigned char byte : uuid.bytes) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  // NCCL takes a GPU of two such hosts as two GPUs.
  if (const char* host = std::getenv("NCCL_HOSTID"); host && *host) text += std::string("/") + host;
  return text;
}

std::optional<std::string> CudaDevice::export_unsupported_reason(int index) {
  if (capability_of(index) < 70)
    return "GPU " + std::to_string(index) + " is older than Volta: its kernels have no fences for it";
  for (const int attribute : {cuda::kVirtualMemory, cuda::kFileDescriptorHandles}) {
    int able = 0;
    if (driver().device_attribute(&able, attribute, index) != cuda::kSuccess || !able)
      return "GPU " + std::to_string(index) + " has no memory that other processes could map (cuMemCreate)";
  }
  return std::nullopt;
}

std::optional<std::string> CudaDevice::atomics_unsupported_reason(int index, const std::string& other) {
  if (identity(index) == other) return std::nullopt;
  const cuda::Driver& cuda = driver();
  int number = 0;
  if (cuda.device_count(&number) != cuda::kSuccess) number = 0;
  for (int peer = 0; peer < number; ++peer) {
    if (identity(peer) != other) continue;
    if (has_atomics_on(index, peer)) return std::nullopt;
    return "GPU " + std::to_string(index) + " has no atomic operations on memory of GPU " +
           std::to_string(peer) + " (they are not linked by NVLink)";
  }
  return "this process does not see the other GPU (CUDA_VISIBLE_DEVICES), and so cannot tell whether atomic "
         "operations "
         "reach it";
}

// The generations that NCCL trusts with it, and none beside another.
std::vector<std::string> CudaDevice::links(int index) {
  const cuda::Driver& cuda = driver();
  if (cuda.missing) return {};
  constexpr int kTrusted[] = {70, 80, 90, 100, 120};
  const int own = capability_of(index);
  int number = 0;
  if (std::find(std::begin(kTrusted), std::end(kTrusted), own) == std::end(kTrusted) ||
      cuda.device_count(&number) != cuda::kSuccess)
    return {};
  std::vector<std::string> linked;
  for (int peer = 0; peer < number; ++peer) {
    if (peer != index && capability_of(peer) == own && has_atomics_on(index, peer))
      linked.push_back(identity(peer));
  }
  return linked;
}

bool CudaDevice::serves_several(int index) {
  int enabled = 0;
  return !driver().missing &&
         driver().device_attribute(&enabled, cuda::kMpsEnabled, index) == cuda::kSuccess && enabled;
}

int CudaDevice::multiprocessors(int index) {
  int number = 0;
  if (!driver().missing) driver().device_attribute(&number, cuda::kMultiprocessors, index);
  return number;
}

// Memory of several allocations may lie in one range, as in torch's expandable segments.
std::optional<std::span<std::byte>> CudaDevice::allocation(const std::byte* block, std::size_t bytes) {
  const cuda::Driver& cuda = driver();
  DevicePtr base = 0;
  std::size_t size = 0;
  if (cuda.missing || cuda.address_range(&base, &size, address(block)) != cuda::kSuccess ||
      bytes > base + size - address(block))
    return std::nullopt;
  const std::span<std::byte> found(reinterpret_cast<std::byte*>(base), size);
  std::uint64_t first = 0, last = 0;
  if (cuda.retain_handle(&first, &found.front()) != cuda::kSuccess) return std::nullopt;
  cuda::AllocationProperties properties;
  const bool is_exportable = cuda.handle_properties(&properties, first) == cuda::kSuccess &&
                             (properties.handle_types & cuda::kFileDescriptor) != 0;
  const bool has_last = cuda.retain_handle(&last, &found.back()) == cuda::kSuccess;
  if (has_last) cuda.release_handle(last);
  cuda.release_handle(first);
  return is_exportable && has_last && first == last ? std::optional(found) : std::nullopt;
}

CudaDevice::CudaDevice(int index, bool shared, bool beside) : index_(index), shared_(shared) {
  if (auto reason = unsupported_reason(index)) throw Error(ErrorKind::kUnsupported, *reason);
  context_ = beside ? CudaContext::beside(index) : CudaContext::primary(index);
  const auto entered = context_->enter();
  driver().check("cuEventCreate", driver().event_create(&event_, cuda::kEventDisableTiming));
  launches_early_ = capability_of(index) >= 90;
}

CudaDevice::~CudaDevice() {
  const cuda::Driver& cuda = driver();
  const auto visit = context_->visit();
  if (event_) cuda.event_destroy(event_);
  const CudaRuntime::RelaxedCapture relaxed;
  for (Stream stream : streams_) {
    // What the last kernel there still writes may lie in memory of another context, whose freeing
    // does not wait for this one.
    if (!context_->is_primary()) cuda.stream_synchronize(stream);
    cuda.stream_destroy(stream);
  }
}

bool CudaDevice::wait_until_idle() {
  const CudaRuntime::RelaxedCapture relaxed;
  const auto entered = context_->enter();
  return driver().context_synchronize() == cuda::kSuccess;
}

PinnedMemory CudaDevice::pin(std::size_t bytes) {
  const auto entered = context_->enter();
  const cuda::Driver& cuda = driver();
  void* memory = nullptr;
  const auto result = cuda.host_alloc(&memory, bytes, cuda::kHostAllocPortable | cuda::kHostAllocMapped);
  if (result != cuda::kSuccess) {
    throw Error(ErrorKind::kUnsupported, "no " + std::to_string(bytes >> 10) +
                                             " KiB of pinned memory can be had (cuMemHostAlloc: CUDA error " +
                                             std::to_string(result) + ")");
  }
  std::memset(memory, 0, bytes);
  return {static_cast<std::byte*>(memory), [context = context_](std::byte* pinned) {
            const auto visit = context->visit();  // whichever thread is the last to let go
            driver().host_free(pinned);
          }};
}

PinnedMemory CudaDevice::pin(std::shared_ptr<std::byte> memory, std::size_t bytes) {
  const auto entered = context_->enter();
  const cuda::Driver& cuda = driver();
  int same_address = 0;
  cuda.device_attribute(&same_address, cuda::kCanUseHostPointerForRegisteredMem, index_);
  const auto result = same_address ? cuda.host_register(memory.get(), bytes,
                                                        cuda::kHostAllocPortable | cuda::kHostAllocMapped)
                                   : -1;
  if (result != cuda::kSuccess) {
    throw Error(ErrorKind::kUnsupported,
                "GPU " + std::to_string(index_) + " cannot use " + std::to_string(bytes >> 20) +
                    " MiB of shared memory (cuMemHostRegister: CUDA error " + std::to_string(result) + ")");
  }
  std::byte* pinned = memory.get();
  return {pinned, [memory = std::move(memory), context = context_](std::byte* address) {
            const auto visit = context->visit();
            driver().host_unregister(address);
          }};
}

DeviceMemory CudaDevice::allocate(std::size_t bytes) {
  const auto entered = context_->enter();
  DevicePtr memory = 0;
  const auto result = driver().allocate(&memory, bytes);
  if (result != cuda::kSuccess) {
    throw Error(ErrorKind::kUnsupported,
                "GPU " + std::to_string(index_) + " has no " + std::to_string(bytes >> 20) +
                    " MiB left to stage in (cuMemAlloc: CUDA error " + std::to_string(result) + ")");
  }
  DeviceMemory held(reinterpret_cast<std::byte*>(memory), [context = context_](std::byte* freed) {
    const auto visit = context->visit();
    driver().release(address(freed));
  });
  clear(memory, bytes);
  return held;
}

// On a stream that waits for no other.
void CudaDevice::clear(std::uint64_t memory, std::size_t bytes) {
  const cuda::Driver& cuda = driver();
  Stream stream = nullptr;
  cuda.check("cuStreamCreate", cuda.stream_create(&stream, cuda::kStreamNonBlocking, 0));
  const auto set = cuda.set_bytes(memory, 0, bytes, stream);
  const auto done = cuda.stream_synchronize(stream);
  cuda.stream_destroy(stream);
  cuda.check("cuMemsetD8Async", set);
  cuda.check("cuStreamSynchronize", done);
}

// Memory of its own kind, of which a process that maps it holds a part: it is there until all of
// them have let go.
Device::Exported CudaDevice::export_memory(std::size_t bytes) {
  const auto entered = context_->enter();
  const cuda::Driver& cuda = driver();
  const auto refuse = [&](const char* call, cuda::Result result) {
    throw Error(ErrorKind::kUnsupported, "GPU " + std::to_string(index_) + " gives no " +
                                             std::to_string(bytes >> 20) +
                                             " MiB that other processes could map (" + call +
                                             ": CUDA error " + std::to_string(result) + ")");
  };
  const cuda::AllocationProperties properties = cuda::AllocationProperties::exportable(index_);
  std::size_t granularity = 0;
  if (const auto result = cuda.allocation_granularity(&granularity, &properties, 0); result != cuda::kSuccess)
    refuse("cuMemGetAllocationGranularity", result);
  bytes = rounded_up(bytes, granularity);
  std::uint64_t handle = 0;
  if (const auto result = cuda.create_memory(&handle, bytes, &properties, 0); result != cuda::kSuccess)
    refuse("cuMemCreate", result);
  int number = -1;
  if (const auto result = cuda.export_handle(&number, handle, cuda::kFileDescriptor, 0);
      result != cuda::kSuccess) {
    cuda.release_handle(handle);
    refuse("cuMemExportToShareableHandle", result);
  }
  Descriptor descriptor(number);
  DeviceMemory memory = map(handle, bytes);
  clear(address(memory.get()), bytes);
  return {std::move(memory), std::move(descriptor)};
}

DeviceMemory CudaDevice::import_memory(const Descriptor& descriptor, std::size_t bytes) {
  const auto entered = context_->enter();
  const cuda::Driver& cuda = driver();
  const cuda::AllocationProperties properties = cuda::AllocationProperties::exportable(index_);
  std::size_t granularity = 1;
  cuda.check("cuMemGetAllocationGranularity", cuda.allocation_granularity(&granularity, &properties, 0));
  std::uint64_t handle = 0;
  const auto number = reinterpret_cast<void*>(static_cast<std::intptr_t>(*descriptor));
  const auto result = cuda.import_handle(&handle, number, cuda::kFileDescriptor);
  if (result != cuda::kSuccess) {
    throw Error(ErrorKind::kUnsupported,
                "GPU " + std::to_string(index_) +
                    " cannot take another rank's memory (cuMemImportFromShareableHandle: "
                    "CUDA error " +
                    std::to_string(result) + ")");
  }
  return map(handle, rounded_up(bytes, granularity));
}

DeviceMemory CudaDevice::map(std::uint64_t handle, std::size_t bytes) {
  const cuda::Driver& cuda = driver();
  DevicePtr place = 0;
  const cuda::Access access = cuda::Access::to(index_);
  const char* call = "cuMemAddressReserve";
  auto result = cuda.reserve_address(&place, bytes, 0, 0, 0);
  if (result == cuda::kSuccess) {
    call = "cuMemMap";
    result = cuda.map_memory(place, bytes, 0, handle, 0);
    if (result == cuda::kSuccess) {
      call = "cuMemSetAccess";
      result = cuda.set_access(place, bytes, &access, 1);
      if (result != cuda::kSuccess) cuda.unmap_memory(place, bytes);
    }
    if (result != cuda::kSuccess) cuda.free_address(place, bytes);
  }
  cuda.release_handle(handle);  // the mapping keeps it
  if (result != cuda::kSuccess) {
    throw Error(ErrorKind::kUnsupported, "GPU " + std::to_string(index_) +
                                             " cannot reach the memory of the other GPU (" + call +
                                             ": CUDA error " + std::to_string(result) + ")");
  }
  return {reinterpret_cast<std::byte*>(place), [context = context_, bytes](std::byte* mapped) {
            const cuda::Driver& driver = cuda::driver();
            const auto visit = context->visit();
            driver.unmap_memory(address(mapped), bytes);
            driver.free_address(address(mapped), bytes);
          }};
}

Stream CudaDevice::make_stream(bool high_priority) {
  const auto entered = context_->enter();
  const cuda::Driver& cuda = driver();
  int least = 0, greatest = 0;
  cuda.check("cuCtxGetStreamPriorityRange", cuda.priority_range(&least, &greatest));
  Stream stream = nullptr;
  cuda.check("cuStreamCreateWithPriority",
             cuda.stream_create(&stream, cuda::kStreamNonBlocking, high_priority ? greatest : least));
  streams_.push_back(stream);
  return stream;
}

void CudaDevice::copy_to_host(void* host, const void* device, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const auto entered = context_->enter();
  driver().check("cuMemcpyDtoHAsync", driver().copy_to_host(host, address(device), bytes, stream));
}

bool CudaDevice::copy_in_rows(void* device, const void* host, std::size_t bytes, Stream stream) {
  const std::size_t rows = rows_of(bytes);
  if (rows == 0) return false;
  cuda::RowCopy copy;
  copy.width = copy.from.pitch = copy.to.pitch = bytes / rows;
  copy.rows = rows;
  copy.from.type = cuda::kOnHost;
  copy.from.host = host;
  copy.to.type = cuda::kOnDevice;
  copy.to.device = address(device);
  driver().check("cuMemcpy2DAsync", driver().copy_rows(&copy, stream));
  return true;
}

void CudaDevice::copy_to_device(void* device, const void* host, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const auto entered = context_->enter();
  if (shared_ && bytes < kLeftToMultiprocessors && copy_in_rows(device, host, bytes, stream)) return;
  driver().check("cuMemcpyHtoDAsync", driver().copy_to_device(address(device), host, bytes, stream));
}

void CudaDevice::copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const auto entered = context_->enter();
  driver().check("cuMemcpyDtoDAsync", driver().copy_on_device(address(to), address(from), bytes, stream));
}

void CudaDevice::prepare(DType dtype, ReduceOp op, Reducing what) {
  void*& own = reduction(dtype, op, what);
  if (own) return;
  const auto entered = context_->enter();
  own = context_->kernel(what == kLl        ? ll_reduction_kernel(dtype, op)
                         : what == kTwoShot ? two_shot_kernel(dtype, op)
                         : what == kOneShot ? one_shot_kernel(dtype, op)
                         : what == kUpdate  ? window_update_kernel(dtype, op)
                         : what == kLl128   ? ll128_reduce_kernel(dtype, op)
                         : what == kNorm    ? ll_norm_kernel(dtype)
                         : what == kRows    ? row_sum_kernel(dtype)
                                            : reduction_kernel(dtype, op));
}

void CudaDevice::prepare_exchange() {
  if (exchange_) return;
  const auto entered = context_->enter();
  exchange_ = context_->kernel(exchange_kernel());
  ll128_exchange_ = context_->kernel(ll128_exchange_kernel());
}

void CudaDevice::prepare_copies() {
  if (block_copies_) return;
  const auto entered = context_->enter();
  block_copies_ = context_->kernel(block_copies_kernel());
}

void CudaDevice::copy_blocks(const BlockCopies& job, Stream stream) {
  if (job.number == 0) return;
  prepare_copies();
  const auto entered = context_->enter();
  std::int64_t longest = 0;
  for (int i = 0; i < job.number; ++i) longest = std::max(longest, job.copies[i].bytes);
  launch_rows(block_copies_, job.number, longest, &job, stream);
}

void CudaDevice::prepare_ll_moves() {
  if (pair_exchange_) return;
  const auto entered = context_->enter();
  ll_move_ = context_->kernel(ll_move_kernel());
  pair_exchange_ = context_->kernel(pair_exchange_kernel());
}

void CudaDevice::launch(void* kernel, unsigned columns, unsigned rows, std::int64_t threads,
                        const void* argument, Stream stream) {
  constexpr std::int64_t kWarp = 32;
  const auto rounded = static_cast<unsigned>(std::clamp(rounded_up(threads, kWarp), kWarp, kThreads));
  void* arguments[] = {const_cast<void*>(argument)};
  // It may be put on the multiprocessors while the kernel before it comes to its end, which it
  // waits for (names.cpp).
  const cuda::LaunchAttribute early{.id = cuda::kProgrammaticSerialization, .value = 1};
  const cuda::LaunchConfig config{.grid_x = columns,
                                  .grid_y = rows,
                                  .block_x = rounded,
                                  .stream = stream,
                                  .attributes = &early,
                                  .number = launches_early_ ? 1u : 0u};
  driver().check("cuLaunchKernelEx", driver().launch(&config, kernel, arguments, nullptr));
}

void CudaDevice::launch(void* kernel, std::int64_t threads, int most_blocks, const void* argument,
                        Stream stream) {
  const auto blocks = std::clamp<std::int64_t>(divided_up(threads, kThreads), 1, most_blocks);
  launch(kernel, static_cast<unsigned>(blocks), 1, kThreads, argument, stream);
}

void CudaDevice::reduce(const DeviceReduction& reduction, DType dtype, ReduceOp op, Stream stream) {
  if (reduction.count == 0) return;
  prepare(dtype, op, kParts);
  const auto entered = context_->enter();
  // A few thread blocks keep the bus busy; the other multiprocessors are left to kernels that
  // compute meanwhile.
  const auto packs = reduction.count * static_cast<std::int64_t>(size_of(dtype)) / 16;
  launch(this->reduction(dtype, op, kParts), packs, /*most_blocks=*/32, &reduction, stream);
}

void CudaDevice::reduce_ll(const LlExchange& exchange, DType dtype, ReduceOp op, Stream stream) {
  prepare(dtype, op, kLl);
  const auto entered = context_->enter();
  const auto words = exchange.count * static_cast<std::int64_t>(size_of(dtype)) / 4;
  launch_ll(reduction(dtype, op, kLl), exchange, words, stream);
}

void CudaDevice::move_ll(const LlExchange& exchange, Stream stream) {
  prepare_ll_moves();
  const auto entered = context_->enter();
  launch_ll(ll_move_, exchange, exchange.count / 4, stream);
}

// A thread for each word of a row.
void CudaDevice::sum_and_norm(const NormedSum& job, DType dtype, Stream stream) {
  prepare(dtype, ReduceOp::kSum, kNorm);
  const auto entered = context_->enter();
  const auto words = job.row * static_cast<std::int64_t>(size_of(dtype)) / 4;
  launch(reduction(dtype, ReduceOp::kSum, kNorm), static_cast<unsigned>(job.exchange.blocks), 1,
         std::max<std::int64_t>(words, job.exchange.number), &job, stream);
}

// A thread for each word, or for each rank that is met.
void CudaDevice::launch_ll(void* kernel, const LlExchange& exchange, std::int64_t words, Stream stream) {
  const auto threads = std::max<std::int64_t>(words / exchange.blocks + 1, exchange.number);
  launch(kernel, static_cast<unsigned>(exchange.blocks), 1, threads, &exchange, stream);
}

void CudaDevice::exchange_pairs(const PairExchange& exchange, Stream stream) {
  prepare_ll_moves();
  const auto entered = context_->enter();
  int most = 1;
  std::int64_t threads = 1;
  for (int i = 0; i < exchange.number; ++i) {
    const PairExchange::Pair& pair = exchange.pairs[i];
    most = std::max(most, pair.blocks);
    threads = std::max<std::int64_t>(threads, std::max(pair.sent, pair.taken) / 4 / pair.blocks + 1);
  }
  launch(pair_exchange_, static_cast<unsigned>(most), static_cast<unsigned>(exchange.number), threads,
         &exchange, stream);
}

void CudaDevice::reduce_two_shot(const TwoShotReduce& job, DType dtype, ReduceOp op, Stream stream) {
  prepare(dtype, op, kTwoShot);
  const auto entered = context_->enter();
  launch(reduction(dtype, op, kTwoShot), static_cast<unsigned>(job.blocks), 1, kThreads, &job, stream);
}

void CudaDevice::reduce_one_shot(const OneShotReduce& job, DType dtype, ReduceOp op, Stream stream) {
  prepare(dtype, op, kOneShot);
  const auto entered = context_->enter();
  launch(reduction(dtype, op, kOneShot), 2 * static_cast<unsigned>(job.blocks), 1, kThreads, &job, stream);
}

void CudaDevice::exchange(const Exchange& job, Stream stream) {
  prepare_exchange();
  const auto entered = context_->enter();
  const int ranks = job.slots.number;
  const int most = std::max(*std::max_element(job.blocks_sent, job.blocks_sent + ranks),
                            *std::max_element(job.blocks_taken, job.blocks_taken + ranks));
  launch(exchange_, static_cast<unsigned>(2 * most), static_cast<unsigned>(ranks), kThreads, &job, stream);
}

// A thread for every pack.
void CudaDevice::change_chunks(const QuantizedChunks& job, DType dtype, Stream stream) {
  const auto entered = context_->enter();
  void*& own = quantized_chunks_[job.float8][static_cast<int>(dtype)];
  if (!own) own = context_->kernel(quantized_chunks_kernel(dtype, job.float8 != 0));
  launch(own, divided_up(job.count + 1, std::int64_t{14}), /*most_blocks=*/1024, &job, stream);
}

void CudaDevice::reduce_ll128(const Ll128Reduce& job, DType dtype, ReduceOp op, Stream stream) {
  prepare(dtype, op, kLl128);
  const auto entered = context_->enter();
  const int blocks = job.blocks * (Ll128Slots::kThreads / job.threads);
  launch(reduction(dtype, op, kLl128), static_cast<unsigned>(blocks), 1, job.threads, &job, stream);
}

void CudaDevice::exchange_ll128(const Ll128Exchange& job, Stream stream) {
  prepare_exchange();
  const auto entered = context_->enter();
  const int ranks = job.slots.number;
  const int blocks = *std::max_element(job.blocks, job.blocks + ranks) * (Ll128Slots::kThreads / job.threads);
  launch(ll128_exchange_, static_cast<unsigned>(blocks), static_cast<unsigned>(ranks), job.threads, &job,
         stream);
}

void CudaDevice::prepare_windows() {
  if (window_number_) return;
  const auto entered = context_->enter();
  window_move_ = context_->kernel(window_move_kernel());
  window_wait_ = context_->kernel(window_wait_kernel());
  window_number_ = context_->kernel(window_number_kernel());
}

void CudaDevice::move_window(const WindowMove& job, Stream stream) {
  prepare_windows();
  const auto entered = context_->enter();
  const std::int64_t threads = job.rows * (job.row_bytes / 16 + 1);
  if (job.raised) return launch(window_move_, 1, 1, threads, &job, stream);
  launch(window_move_, threads, /*most_blocks=*/32, &job, stream);
}

void CudaDevice::await_window(const WindowWait& job, Stream stream) {
  prepare_windows();
  const auto entered = context_->enter();
  launch(window_wait_, 1, 1, job.bytes / 8, &job, stream);  // all but one only if it is aborted
}

void CudaDevice::update_window(const WindowUpdate& job, DType dtype, ReduceOp op, Stream stream) {
  prepare(dtype, op, kUpdate);
  const auto entered = context_->enter();
  launch(reduction(dtype, op, kUpdate), job.row * job.rows, /*most_blocks=*/32, &job, stream);
}

void CudaDevice::change_number(const WindowNumber& job, Stream stream) {
  prepare_windows();
  const auto entered = context_->enter();
  launch(window_number_, 1, 1, 1, &job, stream);
}

void CudaDevice::prepare_poison() {
  if (poison_) return;
  const auto entered = context_->enter();
  poison_ = context_->kernel(poison_kernel());
}

// One block: almost always it looks at a word and ends. Looks of several at a word on the host take
// their turns on the bus, 32 of them 38 us.
void CudaDevice::poison(const PoisonJob& job, Stream stream) {
  if (job.bytes == 0 && !job.released) return;
  prepare_poison();
  const auto entered = context_->enter();
  launch(poison_, job.bytes / 8, /*most_blocks=*/1, &job, stream);
}

void CudaDevice::wait_for_stream(Stream stream, Stream other) {
  const auto entered = context_->enter();
  driver().check("cuEventRecord", driver().event_record(event_, other));
  driver().check("cuStreamWaitEvent", driver().stream_wait_event(stream, event_, 0));
}

void CudaDevice::raise(Flag& flag, std::uint32_t value, Stream stream) {
  const auto entered = context_->enter();
  driver().check("cuStreamWriteValue32",
                 driver().write_value(stream, address(&flag.count), value, cuda::kWriteValueDefault));
}

void CudaDevice::wait_for_flag(const Flag& flag, std::uint32_t value, Stream stream) {
  const auto entered = context_->enter();
  driver().check("cuStreamWaitValue32",
                 driver().wait_value(stream, address(&flag.count), value, cuda::kWaitValueGeq));
}

}  // namespace altorch
