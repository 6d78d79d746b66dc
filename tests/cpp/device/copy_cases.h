// SPDX-License-Identifier: BSD-3-Clause
// Copies as Device::copy_blocks() takes them.
#pragma once

#include "device/bench.h"
#include "device/expected.h"

namespace altorch {

// Copies of all lengths around what a thread, a block and a piece move, aligned and not, and as
// many as a job holds. Returns what went wrong, or nothing.
inline std::optional<std::string> run_copies(Bench& bench) {
  Image image;
  BlockCopies job;
  std::vector<std::size_t> from, to;
  constexpr std::size_t kLengths[] = {0, 1, 15, 16, 17, 1003, 4096, 8191};
  constexpr std::size_t kShifts[] = {0, 1, 2, 4, 8, 16};
  for (int i = 0; i < BlockCopies::kMost; ++i) {
    const auto place = static_cast<std::size_t>(i);
    const std::size_t bytes = i == 0 ? 150'001 : kLengths[place % std::size(kLengths)];
    const Bytes data = elements_of(DType::kUInt8, bytes, static_cast<unsigned>(i + 1));
    from.push_back(image.place(data, kShifts[place % std::size(kShifts)]));
    to.push_back(image.place(Bytes(bytes, 0xEE), kShifts[place / 2 % std::size(kShifts)]));
    image.expect(to.back(), DType::kUInt8, data);
    job.copies[i].bytes = static_cast<std::int64_t>(bytes);
  }
  job.number = BlockCopies::kMost;
  return bench.run(image, {}, [&](std::byte* memory, std::byte*, Stream stream) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      job.copies[i].from = memory + from[i];
      job.copies[i].to = memory + to[i];
    }
    bench.device().copy_blocks(job, stream);
  });
}

}  // namespace altorch
