// SPDX-License-Identifier: BSD-3-Clause
// All_reduces with a norm behind them as Device::sum_and_norm() takes them, and their results. One
// rank's kernel can be run alone: the words of the others are there already. The numbers are whole
// and small, so that no order of adding makes a difference.
#pragma once

#include <cmath>

#include "device/pair_cases.h"

namespace altorch {

struct NormCase {
  DType dtype;
  int number;  // of ranks
  std::int64_t rows, row;
  int blocks;  // at least one for each ceil(rows / blocks) rows
  bool weighs = true, in_place = false, shifted = false;

  static constexpr std::uint32_t kExchange = 6;
  static constexpr double kEpsilon = 0.5;

  std::int64_t count() const { return rows * row; }
  std::int64_t rows_of_block() const { return (rows + blocks - 1) / blocks; }
  std::size_t region() const { return static_cast<std::size_t>(rows_of_block() * row) * size_of(dtype) / 4; }
  static double number_of(std::int64_t at, int who) {
    return static_cast<double>((at * 7 + 3 * who) % 5 - 2);
  }
  double summed(std::int64_t at) const {
    double sum = number_of(at, 50);
    for (int rank = 0; rank < number; ++rank) sum += number_of(at, rank);
    return sum;
  }
  // In the precision that the kernel computes in.
  double normed(std::int64_t at) const {
    double squares = 0;
    for (std::int64_t i = at / row * row; i < at / row * row + row; ++i) squares += summed(i) * summed(i);
    const double weight = weighs ? number_of(at % row, 51) : 1.0;
    if (dtype == DType::kFloat64)
      return summed(at) * (1.0 / std::sqrt(squares / static_cast<double>(row) + kEpsilon)) * weight;
    const float mean = static_cast<float>(squares) / static_cast<float>(row) + static_cast<float>(kEpsilon);
    return static_cast<float>(summed(at)) * (1.0f / std::sqrt(mean)) * static_cast<float>(weight);
  }
  template <class Value>
  Bytes elements(std::int64_t number, const Value& value) const {
    Bytes bytes(static_cast<std::size_t>(number) * size_of(dtype));
    for (std::int64_t i = 0; i < number; ++i) put(bytes.data(), static_cast<std::size_t>(i), value(i));
    return bytes;
  }
  Bytes part(int who, std::int64_t number) const {
    return elements(number, [&](std::int64_t at) { return number_of(at, who); });
  }

  void put(void* data, std::size_t at, double value) const {
    if (is_half(dtype)) return reference::put(data, at, reference::encode_half(dtype, value));
    if (dtype == DType::kFloat64) return reference::put(data, at, value);
    reference::put(data, at, static_cast<float>(value));
  }

  std::string text(int rank) const {
    return std::to_string(rows) + " rows of " + std::to_string(row) + " " + name_of(dtype) + " in " +
           std::to_string(blocks) + " blocks" + (weighs ? ", weighted" : "") +
           (in_place ? ", in place" : "") + (shifted ? ", shifted" : "") + ", rank " + std::to_string(rank) +
           " of " + std::to_string(this->number);
  }
};

// What one rank has in its own memory, and what the others' hold of it.
class LaidNorm {
 public:
  LaidNorm(const NormCase& norm, int rank) : case_(norm), rank_(rank) {
    const std::size_t shift = norm.shifted ? size_of(norm.dtype) : 0;
    for (int peer = 0; peer < norm.number; ++peer) {
      const bool own = peer == rank;
      mine_.push_back(own ? 0 : memory_.place(Bytes(place_bytes(), 0)));
      theirs_.push_back(own ? 0 : others_.place(Bytes(place_bytes(), 0)));
      if (own) continue;
      for_each_block(norm.part(peer, norm.count()),
                     [&](std::size_t at, const Bytes& words) { memory_.write(mine_.back() + at, words); });
      for_each_block(norm.part(rank, norm.count()), [&](std::size_t at, const Bytes& words) {
        others_.expect(theirs_.back() + at, DType::kUInt8, words);
      });
    }
    numbers_ = memory_.place(numbers_of(norm.blocks, number_before(NormCase::kExchange)));
    memory_.expect(numbers_, DType::kUInt8, numbers_of(norm.blocks, NormCase::kExchange));
    input_ = memory_.place(norm.part(rank, norm.count()), shift);
    weight_ = memory_.place(norm.part(51, norm.row), shift);
    residual_ = memory_.place(norm.part(50, norm.count()), shift);
    const Bytes nothing(static_cast<std::size_t>(norm.count()) * size_of(norm.dtype), 0xEE);
    summed_ = norm.in_place ? residual_ : memory_.place(nothing, shift);
    output_ = norm.in_place ? input_ : memory_.place(nothing, shift);
    memory_.expect(summed_, norm.dtype,
                   norm.elements(norm.count(), [&](std::int64_t at) { return norm.summed(at); }));
    memory_.expect(output_, norm.dtype,
                   norm.elements(norm.count(), [&](std::int64_t at) { return norm.normed(at); }));
  }

  const Image& memory() const { return memory_; }
  const Image& others() const { return others_; }
  void enqueue(Device& device, std::byte* memory, std::byte* others, const std::uint32_t* aborted,
               Stream stream) const {
    NormedSum job;
    LlExchange& small = job.exchange;
    for (int peer = 0; peer < case_.number; ++peer) {
      if (peer == rank_) continue;
      const auto index = static_cast<std::size_t>(peer);
      small.send_slots[peer] = reinterpret_cast<std::uint64_t*>(others + theirs_[index]);
      small.receive_slots[peer] = reinterpret_cast<std::uint64_t*>(memory + mine_[index]);
    }
    small.numbers = reinterpret_cast<std::uint32_t*>(memory + numbers_);
    small.aborted = aborted;
    small.input = memory + input_;
    small.output = memory + output_;
    small.region = static_cast<std::int64_t>(case_.region());
    small.count = case_.count();
    small.behind = small.number = small.send_slot_count = case_.number;
    small.rank = rank_;
    small.blocks = case_.blocks;
    job.residual = memory + residual_;
    job.weight = case_.weighs ? memory + weight_ : nullptr;
    job.summed = memory + summed_;
    job.row = case_.row;
    job.epsilon = NormCase::kEpsilon;
    device.sum_and_norm(job, case_.dtype, stream);
  }

 private:
  std::size_t place_bytes() const { return 8 * case_.region() * static_cast<std::size_t>(case_.blocks); }
  // Its rows, as they stand in its region.
  template <class Act>
  void for_each_block(const Bytes& data, const Act& act) const {
    const std::size_t each = 4 * case_.region();
    for (std::size_t block = 0; block < static_cast<std::size_t>(case_.blocks); ++block) {
      const auto begin = data.begin() + static_cast<std::ptrdiff_t>(block * each);
      const auto end = data.begin() + static_cast<std::ptrdiff_t>(std::min(data.size(), (block + 1) * each));
      act(8 * block * case_.region(), words_with(Bytes(begin, end), NormCase::kExchange));
    }
  }

  const NormCase case_;
  const int rank_;
  Image memory_, others_;
  std::vector<std::size_t> mine_, theirs_;
  std::size_t numbers_ = 0, input_ = 0, weight_ = 0, residual_ = 0, summed_ = 0, output_ = 0;
};

inline std::optional<std::string> run_alone(Bench& bench, const NormCase& norm, int rank,
                                            const std::uint32_t* aborted) {
  return bench.run_alone(LaidNorm(norm, rank), aborted);
}

inline std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases = {
      {.dtype = DType::kFloat32, .number = 2, .rows = 2, .row = 5, .blocks = 2},
      {.dtype = DType::kFloat32, .number = 3, .rows = 5, .row = 1, .blocks = 3},
      {.dtype = DType::kFloat64, .number = 2, .rows = 3, .row = 77, .blocks = 2},
      {.dtype = DType::kBFloat16, .number = 2, .rows = 1, .row = 4096, .blocks = 1},
  };
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const bool different : {false, true}) {
      cases.push_back({dtype, 2, 7, 130, 4, !different, different, different});
      cases.push_back({dtype, 4, 3, 1030, 3, different, different, different});
    }
  }
  return cases;
}

}  // namespace altorch
