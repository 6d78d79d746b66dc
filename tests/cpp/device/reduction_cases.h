// SPDX-License-Identifier: BSD-3-Clause
// Reductions as Device::reduce() takes them, and their results: for the kernels on a GPU and for
// the same source compiled for the host.
#pragma once

#include "device/device.h"
#include "device/expected.h"

namespace altorch {

// The last two are in place: the output is a part.
enum class Wanted { kOutput, kCopy, kBoth, kInFirst, kInLast };
// What is not aligned to 16 bytes.
enum class Shifted { kNone, kAll, kPinned };

struct ReductionCase {
  DType dtype;
  ReduceOp op;
  std::size_t count;
  int number;
  Wanted wanted = Wanted::kBoth;
  Shifted shifted = Shifted::kNone;
  int scaled = -1;
  double factor = 0.3;

  std::string text() const {
    return std::string(name_of(op)) + " of " + name_of(dtype) + ", " + std::to_string(count) + " x " +
           std::to_string(number) + ", wanted " + std::to_string(static_cast<int>(wanted)) + ", shifted " +
           std::to_string(static_cast<int>(shifted)) + ", scaled " + std::to_string(scaled);
  }
};

// Half types are scaled in float32 as well, and rounded once.
inline Bytes expected_reduction(const ReductionCase& reduction, std::vector<Bytes> parts) {
  if (reduction.scaled < 0) return combined(reduction.dtype, reduction.op, parts);
  const bool half = is_half(reduction.dtype);
  const DType wide = half ? DType::kFloat32 : reduction.dtype;
  if (half) {
    for (Bytes& part : parts) {
      Bytes widened(reduction.count * size_of(wide));
      widen(reduction.dtype, part.data(), reinterpret_cast<float*>(widened.data()), reduction.count);
      part = std::move(widened);
    }
  }
  scale(wide, parts[static_cast<std::size_t>(reduction.scaled)].data(), reduction.factor, reduction.count);
  Bytes result = combined(wide, reduction.op, parts);
  if (!half) return result;
  Bytes narrowed(reduction.count * size_of(reduction.dtype));
  narrow(reduction.dtype, reinterpret_cast<const float*>(result.data()), narrowed.data(), reduction.count);
  return narrowed;
}

// A case in memory, as the engine has it: own data and the output on the GPU, others' parts and the
// copy in pinned memory.
class LaidReduction {
 public:
  explicit LaidReduction(const ReductionCase& reduction) : case_(reduction) {
    std::vector<Bytes> data;
    for (int part = 0; part < reduction.number; ++part) {
      data.push_back(elements_of(reduction.dtype, reduction.count, static_cast<unsigned>(part + 1)));
      parts_.push_back(place(/*on_gpu=*/part % 2 == 0, data.back()));
    }
    const Bytes nothing(data.front().size(), 0xEE);
    if (reduction.wanted == Wanted::kInFirst) output_ = parts_.front();
    if (reduction.wanted == Wanted::kInLast) output_ = parts_.back();
    if (reduction.wanted == Wanted::kOutput || reduction.wanted == Wanted::kBoth)
      output_ = place(/*on_gpu=*/true, nothing);
    if (reduction.wanted != Wanted::kOutput) copy_ = place(/*on_gpu=*/false, nothing);
    const Bytes expected = expected_reduction(reduction, std::move(data));
    for (const auto& result : {output_, copy_}) {
      if (result) image(result->on_gpu).expect(result->at, reduction.dtype, expected);
    }
  }

  const Image& memory() const { return memory_; }
  const Image& pinned() const { return pinned_; }
  DeviceReduction job(std::byte* memory, std::byte* pinned) const {
    const auto address = [&](const Place& place) { return (place.on_gpu ? memory : pinned) + place.at; };
    DeviceReduction job;
    for (std::size_t i = 0; i < parts_.size(); ++i) job.parts[i] = address(parts_[i]);
    job.number = case_.number;
    if (output_) job.output = address(*output_);
    if (copy_) job.copy = address(*copy_);
    job.count = static_cast<std::int64_t>(case_.count);
    job.scaled = case_.scaled;
    job.factor = case_.factor;
    return job;
  }

 private:
  struct Place {
    bool on_gpu;
    std::size_t at;
  };
  Image& image(bool on_gpu) { return on_gpu ? memory_ : pinned_; }
  Place place(bool on_gpu, const Bytes& data) {
    const std::size_t number = size_of(case_.dtype) / (is_complex(case_.dtype) ? 2 : 1);
    const bool shifts = case_.shifted == Shifted::kAll || (case_.shifted == Shifted::kPinned && !on_gpu);
    return {on_gpu, image(on_gpu).place(data, shifts ? number : 0)};
  }

  const ReductionCase case_;
  Image memory_, pinned_;
  std::vector<Place> parts_;
  std::optional<Place> output_, copy_;
};

// Sizes x numbers of parts x what is wanted; what is shifted and scaled changes from case to case.
inline std::vector<ReductionCase> reduction_cases(DType dtype, ReduceOp op) {
  std::vector<ReductionCase> cases;
  const std::size_t counts[] = {0, 1, 7, 1023, 4099};
  const int numbers[] = {1, 2, 3, 5};
  for (std::size_t c = 0; c < std::size(counts); ++c) {
    for (std::size_t n = 0; n < std::size(numbers); ++n) {
      for (int wanted = 0; wanted < 5; ++wanted) {
        const int mixed = static_cast<int>(c + n) + wanted;
        ReductionCase next{dtype, op, counts[c], numbers[n]};
        next.wanted = static_cast<Wanted>(wanted);
        next.shifted = static_cast<Shifted>(mixed % 3);
        if (op == ReduceOp::kPremulSum) next.scaled = mixed % numbers[n];
        cases.push_back(next);
      }
    }
  }
  cases.push_back({dtype, op, 129, DeviceReduction::kMaxParts});
  return cases;
}

}  // namespace altorch
