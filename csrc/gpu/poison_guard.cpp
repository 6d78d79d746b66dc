// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/poison_guard.h"

#include "base/dtype.h"
#include "base/shape.h"

namespace altorch {

std::span<std::byte> result_of(const Operation& operation, int rank, int size) {
  const auto elements = operation.output ? result_count(operation, rank, size) : 0;
  return {static_cast<std::byte*>(operation.output),
          static_cast<std::size_t>(elements) * size_of(operation.dtype)};
}

void poison_if(const std::uint32_t* aborted, const Operation& operation, int rank, int size, Device& device,
               Stream stream) {
  const auto result = result_of(operation, rank, size);
  if (result.empty()) return;
  device.poison({.data = result.data(),
                 .bytes = static_cast<std::int64_t>(result.size()),
                 .pattern = poison_of(operation.dtype),
                 .aborted = aborted},
                stream);
}

PoisonGuard::PoisonGuard(std::unique_ptr<Device> device)
    : device_(std::move(device)), aborted_(device_->pin(sizeof(Flag))) {
  device_->prepare_poison();
}

void PoisonGuard::raise() { reinterpret_cast<Flag*>(aborted_.get())->raise(1); }

void PoisonGuard::guard(const Operation& operation, int rank, int size, Stream stream) {
  poison_if(&reinterpret_cast<const Flag*>(aborted_.get())->count, operation, rank, size, *device_, stream);
}

}  // namespace altorch
