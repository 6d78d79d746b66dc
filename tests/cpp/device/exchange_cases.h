// Small exchanges as Device::reduce_small() and move_small() take them, and their results. One rank's kernel
// can be run alone: the host has then posted what the others would.
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
  LaidExchange(const ExchangeCase& exchange, int rank) : case_(exchange), rank_(rank) {
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
  }

  const Image& memory() const { return memory_; }
  // `areas`: where the ranks post.
  SmallExchange job(std::byte* memory, std::span<std::uint64_t* const> areas,
                    const std::uint32_t* aborted) const {
    SmallExchange job;
    std::copy(areas.begin(), areas.end(), job.areas);
    job.aborted = aborted;
    job.input = memory + input_;
    job.output = memory + output_;
    job.posted = case_.posted(rank_);
    job.wanted = case_.has_result(rank_) ? case_.count : 0;
    job.skipped = case_.pattern == Pattern::kReduceScatter ? rank_ * case_.count : 0;
    const bool broadcasts = case_.pattern == Pattern::kBroadcast;
    job.first = broadcasts ? case_.root : 0;
    job.behind = broadcasts ? case_.root + 1 : case_.number;
    job.rank = rank_;
    job.number = case_.number;
    job.exchange = case_.exchange;
    job.scaled = case_.scales();
    job.factor = case_.factor(rank_);
    return job;
  }
  void enqueue(Device& device, const SmallExchange& job, Stream stream) const {
    if (case_.moves()) return device.move_small(job, stream);
    device.reduce_small(job, case_.dtype, case_.op, stream);
  }

 private:
  std::size_t block_bytes() const { return static_cast<std::size_t>(case_.count) * size_of(case_.dtype); }

  const ExchangeCase case_;
  const int rank_;
  Image memory_;
  std::size_t input_ = 0, output_ = 0;
};

// What words are compared as: where a rank posts what it has scaled, the bits of a NaN are the processor's.
inline DType seen_as(const ExchangeCase& exchange) {
  if (!exchange.scales()) return DType::kUInt64;
  if (exchange.dtype == DType::kComplex64) return DType::kFloat32;
  return size_of(exchange.dtype) <= 4 && is_floating(exchange.dtype) ? exchange.dtype : DType::kUInt64;
}

// Areas in which everybody but `rank` has posted already, behind what the exchange before last has left.
class LaidAreas {
 public:
  LaidAreas(const ExchangeCase& exchange, int rank) {
    for (int from = 0; from < exchange.number; ++from) {
      const Bytes words = words_with(exchange.part(from), exchange.exchange);
      const Bytes stale =
          words_with(elements_of(DType::kUInt8, words.size() / 2 + 64, 99), exchange.exchange - 2);
      at_.push_back(memory_.place(stale));
      if (from != rank) {
        memory_.write(at_.back(), words);
        continue;
      }
      // In place the output lies where this rank's own block was, which nobody reads from its area.
      const bool overwritten = exchange.in_place && exchange.pattern == Pattern::kReduceScatter;
      const std::size_t block =
          overwritten ? static_cast<std::size_t>(exchange.count) * size_of(exchange.dtype) : 0;
      const std::size_t begin = block * static_cast<std::size_t>(rank) / 4 * 8;
      const std::size_t end = overwritten ? (block * static_cast<std::size_t>(rank + 1) + 3) / 4 * 8 : begin;
      memory_.expect(at_.back(), seen_as(exchange), Bytes(&words[0], &words[begin]));
      memory_.ignore(at_.back() + begin, end - begin);
      memory_.expect(at_.back() + end, seen_as(exchange),
                     Bytes(words.begin() + static_cast<std::ptrdiff_t>(end), words.end()));
    }
  }

  const Image& memory() const { return memory_; }
  std::vector<std::uint64_t*> areas(std::byte* memory) const {
    std::vector<std::uint64_t*> areas;
    for (const std::size_t at : at_) areas.push_back(reinterpret_cast<std::uint64_t*>(memory + at));
    return areas;
  }

 private:
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

// Patterns x numbers of ranks x sizes; what is in place, shifted and the root changes from case to case.
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
