// SPDX-License-Identifier: BSD-3-Clause
// Exchanges of pairs as Device::exchange_pairs() takes them, and their results. One rank's kernel
// can be run alone: the host has then posted what the peers would.
#pragma once

#include "device/bench.h"
#include "device/expected.h"

namespace altorch {

struct PairSizes {
  std::uint32_t sent, taken;  // bytes
  bool own = false;           // this rank's block for itself: `sent` bytes
};

struct PairCase {
  std::vector<PairSizes> pairs;
  bool in_place = false;  // blocks of equal size
  std::uint32_t exchange = 6;

  std::string text() const {
    std::string all = in_place ? "in place:" : "";
    for (const PairSizes& pair : pairs)
      all += " " + std::to_string(pair.sent) + (pair.own ? " own" : "/" + std::to_string(pair.taken));
    return all + ", exchange " + std::to_string(exchange);
  }
};

inline Bytes bytes_of(std::size_t count, unsigned seed) { return elements_of(DType::kUInt8, count, seed); }

// The number of the exchange before this one, and those of so many blocks.
inline std::uint32_t number_before(std::uint32_t exchange) {
  return exchange == 2 ? 0xFFFFFFFFu : exchange - 1;
}
inline Bytes numbers_of(int blocks, std::uint32_t number) {
  Bytes all(4 * static_cast<std::size_t>(blocks));
  for (int block = 0; block < blocks; ++block)
    reference::put(&all[0], static_cast<std::size_t>(block), number);
  return all;
}

// Four bytes of data, then the number of the exchange; at least one word.
inline Bytes words_with(Bytes data, std::uint32_t exchange) {
  data.resize(std::max<std::size_t>(4, (data.size() + 3) / 4 * 4));
  Bytes words(2 * data.size());
  for (std::size_t i = 0; i < data.size() / 4; ++i) {
    std::copy_n(&data[4 * i], 4, &words[8 * i]);
    reference::put(&words[8 * i], 1, exchange);
  }
  return words;
}

// What a place holds after one side of an exchange: from which word on, what. `unit`: the words of
// an element.
inline constexpr std::int64_t kRegion = 512;  // words
struct Words {
  std::size_t at;
  Bytes words;
};
inline int blocks_for(std::size_t bytes) {
  return std::max(1, static_cast<int>((bytes + 4 * kRegion - 1) / (4 * kRegion)));
}
inline std::vector<Words> words_in_regions(const Bytes& data, std::size_t unit, int blocks,
                                           std::uint32_t exchange) {
  std::vector<Words> all;
  const std::size_t unit_bytes = 4 * unit, units = (data.size() + unit_bytes - 1) / unit_bytes;
  const std::size_t each = (units + static_cast<std::size_t>(blocks) - 1) / static_cast<std::size_t>(blocks);
  for (std::size_t block = 0; block < static_cast<std::size_t>(blocks); ++block) {
    const auto at = [&](std::size_t index) {
      return data.begin() + static_cast<std::ptrdiff_t>(std::min(data.size(), index * each * unit_bytes));
    };
    all.push_back({block * kRegion, words_with(Bytes(at(block), at(block + 1)), exchange)});
  }
  return all;
}
// What the exchange before last has left in a place.
inline Bytes stale_place(int blocks, std::uint32_t exchange) {
  return words_with(bytes_of(4 * kRegion * static_cast<std::size_t>(blocks), 99), exchange - 2);
}

// One rank's memory, and the areas, in which the peers have posted behind what the exchange before
// last left.
class LaidPairs {
 public:
  explicit LaidPairs(const PairCase& exchange) : case_(exchange) {
    unsigned seed = exchange.exchange;
    for (const PairSizes& pair : exchange.pairs) {
      const Bytes sent = bytes_of(pair.sent, ++seed);
      const Bytes taken = pair.own ? sent : bytes_of(pair.taken, ++seed);
      Place place;
      place.blocks = blocks_for(std::max(sent.size(), taken.size()));
      place.input = memory_.place(sent, seed % 4);
      place.output = exchange.in_place ? place.input : memory_.place(Bytes(taken.size(), 0xEE), seed % 3);
      memory_.expect(place.output, DType::kUInt8, taken);
      place.numbers = memory_.place(numbers_of(place.blocks, number_before(exchange.exchange)));
      if (!pair.own)
        memory_.expect(place.numbers, DType::kUInt8, numbers_of(place.blocks, exchange.exchange));
      place.posts = areas_.place(stale_place(place.blocks, exchange.exchange));
      place.theirs = areas_.place(stale_place(place.blocks, exchange.exchange));
      for (const Words& posted : words_in_regions(sent, 1, place.blocks, exchange.exchange))
        if (!pair.own) areas_.expect(place.posts + 8 * posted.at, DType::kUInt8, posted.words);
      for (const Words& theirs : words_in_regions(taken, 1, place.blocks, exchange.exchange))
        areas_.write(place.theirs + 8 * theirs.at, theirs.words);
      places_.push_back(place);
    }
  }

  const Image& memory() const { return memory_; }
  const Image& areas() const { return areas_; }
  PairExchange job(std::byte* memory, std::byte* areas, const std::uint32_t* aborted) const {
    PairExchange job;
    job.aborted = aborted;
    job.region = kRegion;
    for (const Place& place : places_) {
      const PairSizes& sizes = case_.pairs[static_cast<std::size_t>(job.number)];
      PairExchange::Pair& pair = job.pairs[job.number++];
      pair.input = memory + place.input;
      pair.output = memory + place.output;
      pair.sent = sizes.sent;
      pair.taken = sizes.own ? sizes.sent : sizes.taken;
      pair.blocks = place.blocks;
      if (sizes.own) continue;
      pair.numbers = reinterpret_cast<std::uint32_t*>(memory + place.numbers);
      pair.send_slots = reinterpret_cast<std::uint64_t*>(areas + place.posts);
      pair.theirs = reinterpret_cast<std::uint64_t*>(areas + place.theirs);
    }
    return job;
  }

 private:
  struct Place {
    int blocks;
    std::size_t input, output, numbers, posts, theirs;
  };
  const PairCase case_;
  std::vector<Place> places_;
  Image memory_, areas_;
};

// Runs one rank's kernel, and says what went wrong, or nothing.
inline std::optional<std::string> run_alone(Bench& bench, const PairCase& exchange,
                                            const std::uint32_t* aborted) {
  const LaidPairs laid(exchange);
  return bench.run(laid.memory(), laid.areas(), [&](std::byte* memory, std::byte* pinned, Stream stream) {
    bench.device().exchange_pairs(laid.job(memory, pinned, aborted), stream);
  });
}

inline std::vector<PairCase> pair_cases() {
  std::vector<PairCase> cases{
      {{{1, 1}}},
      {{{0, 5}, {3, 0}}},
      {{{4, 4}, {7, 0, true}, {1023, 17}}, false, 0xFFFFFFFFu},
      {{{32 << 10, 32 << 10}, {32 << 10, 0, true}}, false, 1},
      {{{32 << 10, 32 << 10}, {32 << 10, 0, true}}, true, 2},
      {{{5, 5}, {4097, 4097}, {1, 1}}, true, 0x80000000u},
  };
  PairCase many;
  for (std::uint32_t i = 0; i < PairExchange::kMost; ++i)
    many.pairs.push_back({97 * i, 4000 - 211 * i, i == 5});
  cases.push_back(many);
  return cases;
}

}  // namespace altorch
