// SPDX-License-Identifier: BSD-3-Clause
// Lets a device work on the memory that images describe, and compares.
#pragma once

#include <algorithm>
#include <functional>

#include "device/device.h"
#include "device/image.h"

namespace altorch {

// Memory of both kinds. Thread rules: one thread at a time.
class Bench {
 public:
  static constexpr std::size_t kBytes = 1 << 20;  // of each

  // `finish` waits for the stream, and says whether that went well.
  Bench(Device& device, Stream stream, std::shared_ptr<std::byte> memory, std::function<bool()> finish)
      : device_(device),
        stream_(stream),
        memory_(std::move(memory)),
        pinned_(device.pin(kBytes)),
        staging_(device.pin(kBytes)),
        finish_(std::move(finish)) {}

  Device& device() { return device_; }

  // What went wrong, or nothing.
  std::optional<std::string> run(
      const Image& memory, const Image& pinned,
      const std::function<void(std::byte* memory, std::byte* pinned, Stream stream)>& work) {
    const std::size_t bytes = memory.before().size();
    if (std::max(bytes, pinned.before().size()) > kBytes) return "the bench is too small";
    std::copy_n(memory.before().data(), bytes, reinterpret_cast<unsigned char*>(staging_.get()));
    std::copy_n(pinned.before().data(), pinned.before().size(),
                reinterpret_cast<unsigned char*>(pinned_.get()));
    device_.copy_to_device(memory_.get(), staging_.get(), bytes, stream_);
    work(memory_.get(), pinned_.get(), stream_);
    device_.copy_to_host(staging_.get(), memory_.get(), bytes, stream_);
    if (!finish_()) return "it did not end by itself";
    if (auto wrong = memory.difference(staging_.get())) return "memory of the GPU: " + *wrong;
    if (auto wrong = pinned.difference(pinned_.get())) return "pinned memory: " + *wrong;
    return std::nullopt;
  }

  // One rank's kernel, alone, in the memory that `laid` describes, its own and what the others'
  // hold of it.
  template <class Laid>
  std::optional<std::string> run_alone(const Laid& laid, const std::uint32_t* aborted) {
    return run(laid.memory(), laid.others(), [&](std::byte* memory, std::byte* others, Stream stream) {
      laid.enqueue(device_, memory, others, aborted, stream);
    });
  }

 private:
  Device& device_;
  const Stream stream_;
  const std::shared_ptr<std::byte> memory_;
  const PinnedMemory pinned_, staging_;
  const std::function<bool()> finish_;
};

}  // namespace altorch
