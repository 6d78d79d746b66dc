// Exchanges of pairs as Device::exchange_pairs() takes them, and their results. One rank's kernel can be run
// alone: the host has then posted what the peers would.
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

// One rank's memory, and the areas, in which the peers have posted behind what the exchange before last left.
class LaidPairs {
 public:
  explicit LaidPairs(const PairCase& exchange) : case_(exchange) {
    unsigned seed = exchange.exchange;
    for (const PairSizes& pair : exchange.pairs) {
      const Bytes sent = bytes_of(pair.sent, ++seed);
      const Bytes taken = pair.own ? sent : bytes_of(pair.taken, ++seed);
      Place place;
      place.input = memory_.place(sent, seed % 4);
      place.output = exchange.in_place ? place.input : memory_.place(Bytes(taken.size(), 0xEE), seed % 3);
      memory_.expect(place.output, DType::kUInt8, taken);
      const Bytes posts = words_with(sent, exchange.exchange);
      place.posts = areas_.place(words_with(bytes_of(sent.size() + 64, 98), exchange.exchange - 2));
      if (!pair.own) areas_.expect(place.posts, DType::kUInt8, posts);
      place.theirs = areas_.place(words_with(bytes_of(taken.size() + 64, 99), exchange.exchange - 2));
      areas_.write(place.theirs, words_with(taken, exchange.exchange));
      places_.push_back(place);
    }
  }

  const Image& memory() const { return memory_; }
  const Image& areas() const { return areas_; }
  PairExchange job(std::byte* memory, std::byte* areas, const std::uint32_t* aborted) const {
    PairExchange job;
    job.aborted = aborted;
    for (const Place& place : places_) {
      const PairSizes& sizes = case_.pairs[static_cast<std::size_t>(job.number)];
      PairExchange::Pair& pair = job.pairs[job.number++];
      pair.input = memory + place.input;
      pair.output = memory + place.output;
      pair.sent = sizes.sent;
      pair.taken = sizes.own ? sizes.sent : sizes.taken;
      if (sizes.own) continue;
      pair.exchange = case_.exchange;
      pair.posts = reinterpret_cast<std::uint64_t*>(areas + place.posts);
      pair.theirs = reinterpret_cast<std::uint64_t*>(areas + place.theirs);
    }
    return job;
  }

 private:
  struct Place {
    std::size_t input, output, posts, theirs;
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
