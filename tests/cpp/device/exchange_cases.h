// SPDX-License-Identifier: BSD-3-Clause
// Small exchanges as Device::reduce_ll() and move_ll() take them, and their results. One rank's
// kernel can be run alone: the host has then posted what the others would.
#pragma once

#include <span>

#include "device/pair_cases.h"

namespace altorch {

enum class Pattern { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast };

struct ExchangeCase {
  Pattern pattern;
  DType dtype;  // of moves: bytes
  ReduceOp op;
  int number;          // of ranks
  std::int64_t count;  // elements of the output, or of one block of it; 0: ranks only meet
  bool in_place = false;
  bool shifted = false;  // by an element off every boundary
  int root = 0;
  std::uint32_t exchange = 6;

  bool moves() const { return pattern == Pattern::kAllGather || pattern == Pattern::kBroadcast; }
  // Elements that a rank posts.
  std::int64_t posted(int rank) const {
    if (pattern == Pattern::kBroadcast) return rank == root ? count : 0;
    return pattern == Pattern::kReduceScatter ? number * count : count;
  }
  // The same for a place: of what is scattered every rank has its own.
  bool scatters() const { return pattern == Pattern::kReduceScatter; }
  int places() const { return scatters() ? number : 1; }
  std::size_t bytes_of_place() const { return static_cast<std::size_t>(count) * size_of(dtype); }
  int blocks() const { return blocks_for(bytes_of_place()); }
  std::size_t words_of_place() const { return static_cast<std::size_t>(blocks() * kRegion); }
  std::vector<Words> words(int from, int place) const {
    Bytes data = part(from);
    if (scatters()) {
      const auto begin = data.begin() + static_cast<std::ptrdiff_t>(bytes_of_place()) * place;
      data = Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes_of_place()));
    }
    return words_in_regions(data, std::max<std::size_t>(1, size_of(dtype) / 4), blocks(), exchange);
  }
  bool has_result(int rank) const {
    if (pattern == Pattern::kBroadcast) return rank != root;
    return pattern != Pattern::kReduce || rank == root;
  }
  bool scales() const { return !moves() && op == ReduceOp::kPremulSum; }
  double factor(int rank) const { return scales() ? 0.3 * (rank + 1) : 1.0; }

  Bytes input(int rank) const {
    return elements_of(dtype, static_cast<std::size_t>(posted(rank)),
                       exchange * DeviceReduction::kMaxParts + static_cast<unsigned>(rank));
  }
  // The input as the others see it.
  Bytes part(int rank) const {
    Bytes data = input(rank);
    if (scales()) scale(dtype, data.data(), factor(rank), data.size() / size_of(dtype));
    return data;
  }
  Bytes output(int rank) const {
    if (pattern == Pattern::kBroadcast) return input(root);
    std::vector<Bytes> parts;
    for (int from = 0; from < number; ++from) parts.push_back(part(from));
    if (pattern == Pattern::kAllGather) {
      Bytes joined;
      for (const Bytes& bytes : parts) joined.insert(joined.end(), bytes.begin(), bytes.end());
      return joined;
    }
    const Bytes result = combined(dtype, op, parts);
    if (pattern != Pattern::kReduceScatter) return result;
    const std::size_t block = result.size() / static_cast<std::size_t>(number);
    const auto begin = result.begin() + static_cast<std::ptrdiff_t>(block) * rank;
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(block));
  }

  std::string text(int rank) const {
    constexpr const char* names[] = {"all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast"};
    return std::string(names[static_cast<int>(pattern)]) + (in_place ? " in place, " : ", ") + name_of(op) +
           " of " + name_of(dtype) + " x " + std::to_string(count) + (shifted ? ", shifted" : "") +
           ", rank " + std::to_string(rank) + " of " + std::to_string(number);
  }
};

// What one rank has in its own memory.
class LaidExchange {
 public:
  // `counts`: the numbers of exchanges are in this memory, too.
  LaidExchange(const ExchangeCase& exchange, int rank, bool counts = true) : case_(exchange), rank_(rank) {
    const Bytes input = exchange.input(rank), output = exchange.output(rank);
    const std::size_t shift = exchange.shifted ? size_of(exchange.dtype) : 0;
    const std::size_t before = block_bytes() * static_cast<std::size_t>(rank);  // the blocks of other ranks
    if (exchange.pattern == Pattern::kAllGather && exchange.in_place) {
      output_ = memory_.place(Bytes(output.size(), 0xEE), shift);
      input_ = output_ + before;
      memory_.write(input_, input);
    } else if (exchange.pattern == Pattern::kBroadcast) {
      input_ = output_ = memory_.place(exchange.has_result(rank) ? Bytes(output.size(), 0xEE) : input, shift);
    } else {
      input_ = memory_.place(input, shift);
      output_ = !exchange.in_place ? memory_.place(Bytes(output.size(), 0xEE), shift)
                : exchange.pattern == Pattern::kReduceScatter ? input_ + before
                                                              : input_;
    }
    if (exchange.has_result(rank)) memory_.expect(output_, exchange.dtype, output);
    if (!counts) return;
    numbers_ = memory_.place(numbers_of(exchange.blocks(), number_before(exchange.exchange)));
    memory_.expect(numbers_, DType::kUInt8, numbers_of(exchange.blocks(), exchange.exchange));
  }

  const Image& memory() const { return memory_; }
  // `areas`: where the ranks post.
  LlExchange job(std::byte* memory, std::span<std::uint64_t* const> areas,
                 const std::uint32_t* aborted) const {
    LlExchange job;
    for (int rank = 0; rank < case_.number; ++rank) {
      job.send_slots[rank] = areas[static_cast<std::size_t>(rank_)] + rank * case_.words_of_place();
      const std::size_t place = case_.scatters() ? static_cast<std::size_t>(rank_) : 0;
      job.receive_slots[rank] = areas[static_cast<std::size_t>(rank)] + place * case_.words_of_place();
    }
    job.numbers = reinterpret_cast<std::uint32_t*>(memory + numbers_);
    job.aborted = aborted;
    job.input = memory + input_;
    job.output = memory + output_;
    job.region = kRegion;
    job.blocks = case_.blocks();
    job.send_slot_count = case_.places();
    job.count = case_.count;
    job.stride = case_.scatters() ? case_.count : 0;
    job.own = case_.scatters() ? rank_ * case_.count : 0;
    const bool broadcasts = case_.pattern == Pattern::kBroadcast;
    job.sends_data = !broadcasts || rank_ == case_.root;
    job.wants = case_.has_result(rank_);
    job.first = broadcasts ? case_.root : 0;
    job.behind = broadcasts ? case_.root + 1 : case_.number;
    job.rank = rank_;
    job.number = case_.number;
    job.scaled = case_.scales();
    job.factor = case_.factor(rank_);
    return job;
  }
  void enqueue(Device& device, const LlExchange& job, Stream stream) const {
    if (case_.moves()) return device.move_ll(job, stream);
    device.reduce_ll(job, case_.dtype, case_.op, stream);
  }

 private:
  std::size_t block_bytes() const { return static_cast<std::size_t>(case_.count) * size_of(case_.dtype); }

  const ExchangeCase case_;
  const int rank_;
  Image memory_;
  std::size_t input_ = 0, output_ = 0, numbers_ = 0;
};

// What words are compared as: where a rank posts what it has scaled, the bits of a NaN are the
// processor's.
inline DType seen_as(const ExchangeCase& exchange) {
  if (!exchange.scales()) return DType::kUInt64;
  if (exchange.dtype == DType::kComplex64) return DType::kFloat32;
  return size_of(exchange.dtype) <= 4 && is_floating(exchange.dtype) ? exchange.dtype : DType::kUInt64;
}

// Areas in which all ranks but `rank` have posted already, behind what the exchange before last has
// left.
class LaidAreas {
 public:
  LaidAreas(const ExchangeCase& exchange, int rank) : case_(exchange) {
    for (int from = 0; from < exchange.number; ++from) {
      at_.push_back(memory_.place(stale_place(exchange.blocks() * exchange.places(), exchange.exchange)));
      for (int place = 0; place < exchange.places(); ++place) {
        if (exchange.places() > 1 && place == from) continue;  // no rank posts for itself
        const std::size_t begin =
            at_.back() + 8 * static_cast<std::size_t>(place) * exchange.words_of_place();
        for (const Words& posted : exchange.words(from, place)) {
          if (from == rank) {
            memory_.expect(begin + 8 * posted.at, seen_as(exchange), posted.words);
          } else {
            memory_.write(begin + 8 * posted.at, posted.words);
          }
        }
      }
    }
  }

  const Image& memory() const { return memory_; }
  std::vector<std::uint64_t*> areas(std::byte* memory) const {
    std::vector<std::uint64_t*> areas;
    for (const std::size_t at : at_) areas.push_back(reinterpret_cast<std::uint64_t*>(memory + at));
    return areas;
  }

  // The words that `rank` takes from another one, and has not taken yet where they are taken away.
  std::vector<std::uint64_t*> wanted(std::byte* memory, int from, int rank) const {
    std::vector<std::uint64_t*> all;
    const int place = case_.scatters() ? rank : 0;
    std::uint64_t* begin = areas(memory)[static_cast<std::size_t>(from)] + place * case_.words_of_place();
    for (const Words& posted : case_.words(from, place))
      for (std::size_t i = 0; i < posted.words.size() / 8; ++i) all.push_back(begin + posted.at + i);
    return all;
  }

 private:
  const ExchangeCase case_;
  Image memory_;
  std::vector<std::size_t> at_;
};

// Runs one rank's kernel, and says what went wrong, or nothing.
inline std::optional<std::string> run_alone(Bench& bench, const ExchangeCase& exchange, int rank,
                                            const std::uint32_t* aborted) {
  const LaidExchange laid(exchange, rank);
  const LaidAreas others(exchange, rank);
  return bench.run(laid.memory(), others.memory(), [&](std::byte* memory, std::byte* pinned, Stream stream) {
    laid.enqueue(bench.device(), laid.job(memory, others.areas(pinned), aborted), stream);
  });
}

// The most that the engine lets a rank post, by default.
inline constexpr std::int64_t kMostBytes = 32 << 10;

// Patterns x numbers of ranks x sizes; what is in place, shifted and the root changes from case to
// case.
inline std::vector<ExchangeCase> exchange_cases(std::span<const Pattern> patterns, DType dtype, ReduceOp op) {
  std::vector<ExchangeCase> cases;
  const std::int64_t most = kMostBytes / static_cast<std::int64_t>(size_of(dtype));
  unsigned mixed = 0;
  const auto add = [&](Pattern pattern, int number, std::int64_t count) {
    ExchangeCase next{pattern, dtype, op, number, count};
    next.in_place = mixed % 2 == 1;
    next.shifted = mixed / 2 % 2 == 1;
    next.root = static_cast<int>(mixed) % number;
    next.exchange = 6 + mixed;
    cases.push_back(next);
    ++mixed;
  };
  for (const Pattern pattern : patterns) {
    for (const int number : {1, 2, 3, 5}) {
      for (const std::int64_t count : {0, 1, 7, 1023}) add(pattern, number, count);
    }
    for (int times = 0; times < 2; ++times)  // in place, and not
      add(pattern, 2, pattern == Pattern::kReduceScatter ? most / 2 : most);
  }
  return cases;
}
inline std::vector<ExchangeCase> reducing_exchanges(DType dtype, ReduceOp op) {
  constexpr Pattern patterns[] = {Pattern::kAllReduce, Pattern::kReduce, Pattern::kReduceScatter};
  return exchange_cases(patterns, dtype, op);
}
inline std::vector<ExchangeCase> moving_exchanges() {
  constexpr Pattern patterns[] = {Pattern::kAllGather, Pattern::kBroadcast};
  return exchange_cases(patterns, DType::kUInt8, ReduceOp::kSum);
}

}  // namespace altorch
