// SPDX-License-Identifier: BSD-3-Clause
#include "support/fake_device.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/error.h"
#include "reduction/reduce.h"

#if defined(__SANITIZE_THREAD__)
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif

namespace altorch {
namespace {

void wait_until(const Flag& flag, std::uint32_t value) {
  while (!flag.reached(value)) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

// While it lives, ThreadSanitizer does not look at this thread's memory, only at its atomics and
// locks.
class Unwatched {
 public:
#if defined(__SANITIZE_THREAD__)
  explicit Unwatched(bool really) : really_(really) {
    if (!really_) return;
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unwatched() {
    if (!really_) return;
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }

 private:
  const bool really_;
#else
  explicit Unwatched(bool) {}
#endif
};

}  // namespace

struct FakeDevice::Worker {
  Worker(unsigned seed, const FakeDeviceOptions& options) {
    thread = std::thread([this, seed, longest_delay = options.longest_delay, aborts = options.aborts] {
      std::minstd_rand random(seed);
      while (true) {
        std::function<void()> work;
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return ending || !queue.empty(); });
          if (queue.empty()) return;
          work = std::move(queue.front());
        }
        const auto delay = longest_delay.count() ? random() % (longest_delay.count() + 1) : 0;
        if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
        {
          const Unwatched unwatched(aborts);
          work();
        }
        {
          const std::lock_guard lock(mutex);
          queue.pop_front();
        }
        changed.notify_all();
      }
    });
  }
  ~Worker() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    changed.notify_all();
    thread.join();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;  // the head stays while it runs
  bool ending = false;
  std::thread thread;
};

FakeDevice::FakeDevice(FakeDeviceOptions options) : options_(options) {}
FakeDevice::~FakeDevice() = default;

PinnedMemory FakeDevice::pin(std::size_t bytes) {
  if (*pinned_bytes_ + bytes > options_.pinned_limit)
    throw Error(ErrorKind::kUnsupported, "no more pinned memory can be had");
  *pinned_bytes_ += bytes;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  std::memset(memory, 0, bytes);
  return {memory, [bytes, count = pinned_bytes_](std::byte* pinned) {
            std::free(pinned);
            *count -= bytes;
          }};
}

PinnedMemory FakeDevice::pin(std::shared_ptr<std::byte> memory, std::size_t) { return memory; }

namespace {

DeviceMemory zeroed(std::size_t alignment, std::size_t bytes) {
  const std::size_t whole = (bytes + 63) / 64 * 64;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, whole) != 0) throw std::bad_alloc();
  std::memset(memory, 0, whole);
  return {static_cast<std::byte*>(memory), [](std::byte* freed) { std::free(freed); }};
}

}  // namespace

DeviceMemory FakeDevice::allocate(std::size_t bytes) { return zeroed(64, bytes); }

// One mapping serves all: the thread sanitizer knows memory by its address.
namespace {

struct ExportedMemory {
  std::mutex mutex;
  std::map<ino_t, std::weak_ptr<std::byte>> by_file;
};
ExportedMemory& exported_memory() {
  static auto* all = new ExportedMemory();
  return *all;
}
ino_t file_of(const Descriptor& descriptor) {
  struct stat about {};
  if (fstat(*descriptor, &about) != 0) throw Error(ErrorKind::kUnsupported, "no such descriptor");
  return about.st_ino;
}

}  // namespace

Device::Exported FakeDevice::export_memory(std::size_t bytes) {
  Descriptor file(memfd_create("fake GPU", MFD_CLOEXEC));
  DeviceMemory memory = zeroed(4096, bytes);  // pages of its own, as GPUs have it
  const std::lock_guard lock(exported_memory().mutex);
  exported_memory().by_file[file_of(file)] = memory;
  return {std::move(memory), std::move(file)};
}

DeviceMemory FakeDevice::import_memory(const Descriptor& descriptor, std::size_t) {
  const std::lock_guard lock(exported_memory().mutex);
  auto memory = exported_memory().by_file[file_of(descriptor)].lock();
  if (!memory) throw Error(ErrorKind::kUnsupported, "the memory is gone");
  return memory;
}

Stream FakeDevice::make_stream() {
  const auto seed = options_.seed + 1000 * static_cast<unsigned>(workers_.size());
  workers_.push_back(std::make_unique<Worker>(seed, options_));
  return workers_.back().get();
}

void FakeDevice::launch(std::function<void()> work, Stream stream) {
  {
    const std::lock_guard lock(worker(stream).mutex);
    worker(stream).queue.push_back(std::move(work));
  }
  worker(stream).changed.notify_all();
}

bool FakeDevice::synchronize(Stream stream) {
  auto reached = std::make_shared<Flag>();
  launch([reached] { reached->raise(1); }, stream);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  while (!reached->reached(1)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

void FakeDevice::copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  check_not_beside();
  if (bytes > 0 && options_.moves_data) launch([=] { std::memcpy(to, from, bytes); }, stream);
}
void FakeDevice::copy_to_host(void* host, const void* device, std::size_t bytes, Stream stream) {
  copy(host, device, bytes, stream);
}
void FakeDevice::copy_to_device(void* device, const void* host, std::size_t bytes, Stream stream) {
  copy(device, host, bytes, stream);
}
void FakeDevice::copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream) {
  copy(to, from, bytes, stream);
}

void FakeDevice::reduce(const DeviceReduction& reduction, DType dtype, ReduceOp op, Stream stream) {
  if (!options_.moves_data) return;
  launch(
      [reduction, dtype, op] {
        const auto count = static_cast<std::size_t>(reduction.count);
        const std::size_t bytes = count * size_of(dtype);
        std::vector<const void*> parts(reduction.parts, reduction.parts + reduction.number);
        std::vector<std::byte> scaled;
        if (op == ReduceOp::kPremulSum && reduction.scaled >= 0) {
          const void*& part = parts[static_cast<std::size_t>(reduction.scaled)];
          const auto* begin = static_cast<const std::byte*>(part);
          scaled.assign(begin, begin + bytes);
          scale(dtype, scaled.data(), reduction.factor, count);
          part = scaled.data();
        }
        std::vector<std::byte> result(bytes);
        if (parts.size() == 1) {
          std::memcpy(result.data(), parts[0], bytes);
        } else {
          combine(dtype, op, parts, result.data(), count);
        }
        if (reduction.output) std::memcpy(reduction.output, result.data(), bytes);
        if (reduction.copy) std::memcpy(reduction.copy, result.data(), bytes);
      },
      stream);
}

void FakeDevice::wait_for_stream(Stream stream, Stream other) {
  auto reached = std::make_shared<Flag>();
  raise(*reached, 1, other);
  launch([reached] {}, other);  // keeps the flag until it is raised
  launch([reached] { wait_until(*reached, 1); }, stream);
}

void FakeDevice::check_not_beside() const {
  if (options_.beside)
    throw Error(ErrorKind::kInternal, "another context's calls may hold this up, which is no kernel");
}

void FakeDevice::raise(Flag& flag, std::uint32_t value, Stream stream) {
  check_not_beside();
  // As a GPU does: whatever the flag was before.
  launch([&flag, value] { std::atomic_ref(flag.count).store(value, std::memory_order_release); }, stream);
}

void FakeDevice::wait_for_flag(const Flag& flag, std::uint32_t value, Stream stream) {
  check_not_beside();
  launch([&flag, value] { wait_until(flag, value); }, stream);
}

}  // namespace altorch
