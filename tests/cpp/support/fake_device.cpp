#include "support/fake_device.h"

#include <cstring>

#include "common/error.h"

namespace altorch {

struct FakeDevice::Worker {
  Worker(unsigned seed, std::chrono::microseconds longest_delay) {
    thread = std::thread([this, seed, longest_delay] {
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
        work();
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

Stream FakeDevice::make_stream() {
  const auto seed = options_.seed + 1000 * static_cast<unsigned>(workers_.size());
  workers_.push_back(std::make_unique<Worker>(seed, options_.longest_delay));
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
  std::unique_lock lock(worker(stream).mutex);
  return worker(stream).changed.wait_for(lock, std::chrono::minutes(1),
                                         [&] { return worker(stream).queue.empty(); });
}

void FakeDevice::copy_to_host(void* host, const void* device, std::size_t bytes, Stream stream) {
  launch([=] { std::memcpy(host, device, bytes); }, stream);
}
void FakeDevice::copy_to_device(void* device, const void* host, std::size_t bytes, Stream stream) {
  launch([=] { std::memcpy(device, host, bytes); }, stream);
}
void FakeDevice::copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream) {
  launch([=] { std::memcpy(to, from, bytes); }, stream);
}

void FakeDevice::wait_for_stream(Stream stream, Stream other) {
  auto reached = std::make_shared<Flag>();
  raise(*reached, 1, other);
  launch([reached] {}, other);  // keeps the flag until it is raised
  launch(
      [reached] {
        while (!reached->reached(1)) std::this_thread::yield();
      },
      stream);
}

void FakeDevice::raise(Flag& flag, std::uint32_t value, Stream stream) {
  launch([&flag, value] { flag.raise(value); }, stream);
}

void FakeDevice::wait_for_flag(const Flag& flag, std::uint32_t value, Stream stream) {
  launch(
      [&flag, value] {
        while (!flag.reached(value)) std::this_thread::sleep_for(std::chrono::microseconds(20));
      },
      stream);
}

}  // namespace altorch
