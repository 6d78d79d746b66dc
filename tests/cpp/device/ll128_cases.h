// SPDX-License-Identifier: BSD-3-Clause
// Calls of Device::reduce_ll128() and exchange_ll128(), and their results. The kernel of one rank
// can run alone: the lines of the other ranks are there already, with the numbers of their rounds.
#pragma once

#include <utility>

#include "device/bench.h"
#include "device/expected.h"

namespace altorch {

struct Ll128Case {
  // In shares: each rank reduces one, and passes it on.
  enum Kind { kAllReduce, kReduce, kReduceScatter, kExchange, kAllReduceTwoShot, kReduceTwoShot } kind;
  DType dtype;
  ReduceOp op;
  int number;             // of ranks
  std::int64_t count;     // elements of the vector, or of each rank's block
  bool in_place = false;  // else what is read and written begins `shift` bytes behind where a pack would
  std::size_t shift = 0;

  // One block of 16 warps: a round is of 32 units, or of 16 where a reduction goes among more than
  // two. At most four, so that no slot is used twice; of shares two, each with its results behind
  // it.
  static constexpr std::int64_t kWarps = Ll128Slots::kWarpsOfBlock;
  static constexpr std::size_t kPlace = static_cast<std::size_t>(kWarps * Ll128Slots::kBytesOfWarp);

  bool reduces() const { return kind != kExchange; }
  bool in_blocks() const { return kind == kReduceScatter || kind == kExchange; }
  bool in_shares() const { return kind == kAllReduceTwoShot || kind == kReduceTwoShot; }
  int units_of_round() const { return reduces() && number > 2 ? 1 : 2; }
  int root() const { return number - 1; }
  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(dtype)); }
  // What `rank` has for `wanting`, in bytes of its input.
  std::int64_t begin_for(int wanting) const {
    return in_shares() ? std::min(wanting * share(), bytes()) : in_blocks() ? wanting * bytes() : 0;
  }
  std::int64_t bytes_for(int wanting) const {
    if (in_shares()) return std::min(share(), bytes() - begin_for(wanting));
    return kind == kReduce && wanting != root() ? 0 : bytes();
  }
  // Of whole packs.
  std::int64_t share() const { return (bytes() + 16 * number - 1) / (16 * number) * 16; }
  std::int64_t longest() const { return in_shares() ? share() : bytes(); }
  bool passes_to(int rank) const {
    return kind == kAllReduceTwoShot || (kind == kReduceTwoShot && rank == root());
  }
  Bytes input(int rank) const {
    return elements_of(dtype, static_cast<std::size_t>((in_blocks() ? number : 1) * count),
                       77 + static_cast<unsigned>(rank));
  }
  Bytes part(int rank, int wanting) const {
    const Bytes all = input(rank);
    const auto begin = all.begin() + begin_for(wanting);
    return Bytes(begin, begin + bytes_for(wanting));
  }
  std::string text(int rank) const {
    constexpr const char* names[] = {"all_reduce",           "reduce",          "reduce_scatter", "exchange",
                                     "all_reduce in shares", "reduce in shares"};
    return std::string(names[kind]) + (in_place ? " in place of " : " of ") + name_of(dtype) + " x " +
           std::to_string(count) + ", shifted by " + std::to_string(shift) + ", rank " +
           std::to_string(rank) + " of " + std::to_string(number);
  }
};

// What one rank has in its own memory, and what the others' hold of it.
class LaidLl128 {
 public:
  LaidLl128(const Ll128Case& lines, int rank) : case_(lines), rank_(rank) {
    for (int peer = 0; peer < lines.number; ++peer) {
      const bool own = peer == rank;
      mine_.push_back(own ? 0 : memory_.place(Bytes(Ll128Case::kPlace, 0)));
      theirs_.push_back(own ? 0 : others_.place(Bytes(Ll128Case::kPlace, 0)));
      if (own) continue;
      const auto lay = [&](const Bytes& theirs, const Bytes& own, DType dtype, std::int64_t kind) {
        for_each_unit(theirs, kind,
                      [&](std::size_t at, const Bytes& half) { memory_.write(mine_.back() + at, half); });
        for_each_unit(own, kind, [&](std::size_t at, const Bytes& half) {
          others_.expect(theirs_.back() + at, half.size() % size_of(dtype) == 0 ? dtype : DType::kUInt8,
                         half);
          if (half.size() < 8) others_.ignore(theirs_.back() + at + half.size(), 8 - half.size());
        });
      };
      lay(lines.part(peer, rank), lines.part(rank, peer), DType::kUInt8, 0);
      if (!lines.in_shares()) continue;
      lay(lines.passes_to(rank) ? share_of(peer) : Bytes(), lines.passes_to(peer) ? share_of(rank) : Bytes(),
          lines.dtype == DType::kComplex128 ? DType::kFloat64 : lines.dtype, 1);
    }
    numbers_ = memory_.place(Bytes(8 * static_cast<std::size_t>(lines.number * Ll128Case::kWarps), 0));
    expect_numbers();
    input_ = memory_.place(lines.input(rank), lines.shift);
    const Bytes result = result_of();
    output_ = !lines.in_place ? memory_.place(Bytes(result.size(), 0xEE), lines.shift)
                              : input_ + (lines.reduces() && !lines.in_shares()
                                              ? static_cast<std::size_t>(lines.begin_for(rank))
                                              : 0);
    memory_.expect(output_, lines.dtype, result);
  }

  const Image& memory() const { return memory_; }
  const Image& others() const { return others_; }
  void enqueue(Device& device, std::byte* memory, std::byte* others, const std::uint32_t* aborted,
               Stream stream) const {
    if (case_.reduces())
      return device.reduce_ll128(reduce_job(memory, others, aborted), case_.dtype, case_.op, stream);
    device.exchange_ll128(exchange_job(memory, others, aborted), stream);
  }

 private:
  // Units of data, each as it stands in a place: two rows of 32 lanes, of which every eighth
  // carries the round's number and one pack in two halves, and the others a pack a row. In place of
  // a round's first one, where it is empty, a line with nothing but the number. act(where, halves
  // of packs, of which the last may end before its end).
  template <class Act>
  void for_each_unit(const Bytes& data, std::int64_t kind, const Act& act) const {
    constexpr std::int64_t kUnit = Ll128Slots::kUnitBytes;
    const std::int64_t units = case_.units_of_round(), in_round = units * Ll128Case::kWarps,
                       size = std::ssize(data);
    for (std::int64_t unit = 0; unit < rounds() * in_round; ++unit) {
      const std::int64_t round = unit / in_round, place = unit / Ll128Case::kWarps % units,
                         warp = unit % Ll128Case::kWarps, number = round * kinds() + kind + 1;
      const bool is_empty = unit * kUnit >= size;
      if (place == 1 && is_empty) continue;
      for (std::int64_t i = 0; i < (is_empty ? 128 : 1024); i += 8) {
        const std::int64_t row = i / 512, lane = i % 512 / 16, second = i % 16 / 8;
        const std::int64_t from =
            lane % 8 != 7 ? 16 * (lane - lane / 8 + 28 * row) + 8 * second : 16 * (56 + lane / 8) + 8 * row;
        const auto at = static_cast<std::size_t>(((warp * 4 + number % 4) * 2 + place) * 1024 + i);
        if (lane % 8 == 7 && second == 1) {
          act(at, Bytes{static_cast<unsigned char>(number), 0, 0, 0, 0, 0, 0, 0});
        } else if (const std::int64_t begin = unit * kUnit + from; begin >= (size + 15) / 16 * 16) {
          act(at, is_empty ? Bytes() : Bytes(8, 0));
        } else {  // behind the end, the rest of the last pack may be anything
          act(at, Bytes(data.begin() + std::min(begin, size), data.begin() + std::min(begin + 8, size)));
        }
      }
    }
  }

  std::int64_t rounds() const {
    const std::int64_t round = case_.units_of_round() * Ll128Case::kWarps * Ll128Slots::kUnitBytes;
    return std::max<std::int64_t>(1, (case_.longest() + round - 1) / round);
  }
  std::int64_t kinds() const { return case_.in_shares() ? 2 : 1; }
  // What a rank makes of its own.
  Bytes share_of(int rank) const {
    std::vector<Bytes> parts;
    for (int from = 0; from < case_.number; ++from) parts.push_back(case_.part(from, rank));
    return combined(case_.dtype, case_.op, parts);
  }
  // With each of the others all rounds, by every warp; nothing with itself.
  void expect_numbers() {
    Bytes after(8 * static_cast<std::size_t>(case_.number * Ll128Case::kWarps), 0);
    for (int peer = 0; peer < case_.number; ++peer) {
      for (std::int64_t warp = 0; peer != rank_ && warp < Ll128Case::kWarps; ++warp)
        after[static_cast<std::size_t>(8 * (peer * Ll128Case::kWarps + warp))] =
            static_cast<unsigned char>(rounds() * kinds());
    }
    memory_.expect(numbers_, DType::kUInt8, after);
  }

  Bytes result_of() const {
    if (case_.reduces() && !case_.in_shares()) return share_of(rank_);
    Bytes all;
    for (int rank = 0; rank < case_.number; ++rank) {
      const Bytes part = case_.in_shares() ? share_of(rank) : case_.part(rank, rank_);
      all.insert(all.end(), part.begin(), part.end());
    }
    if (!case_.in_shares() || case_.passes_to(rank_)) return all;
    return case_.in_place ? case_.input(rank_) : Bytes(all.size(), 0xEE);  // no result here
  }

  Ll128Slots slots(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    Ll128Slots made;
    for (int peer = 0; peer < case_.number; ++peer) {
      if (peer == rank_) continue;
      const auto index = static_cast<std::size_t>(peer);
      made.theirs[peer] = reinterpret_cast<std::uint64_t*>(others + theirs_[index]);
      made.mine[peer] = reinterpret_cast<std::uint64_t*>(memory + mine_[index]);
    }
    made.numbers = reinterpret_cast<std::uint64_t*>(memory + numbers_);
    made.aborted = aborted;
    made.rank = rank_;
    made.number = case_.number;
    made.warps = Ll128Case::kWarps;
    return made;
  }
  Ll128Reduce reduce_job(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    Ll128Reduce job{.slots = slots(memory, others, aborted)};
    job.input = memory + input_;
    job.output = memory + output_;
    const auto element = static_cast<std::int64_t>(size_of(case_.dtype));
    for (int rank = 0; rank < case_.number; ++rank) {
      job.begins[rank] = case_.begin_for(rank) / element;
      job.counts[rank] = case_.bytes_for(rank) / element;
    }
    job.passed_to = case_.kind == Ll128Case::kAllReduceTwoShot ? Ll128Reduce::kToAll
                    : case_.kind == Ll128Case::kReduceTwoShot  ? case_.root()
                                                               : Ll128Reduce::kToNone;
    count_units(job, Ll128Slots::kUnitBytes / element);
    return job;
  }
  Ll128Exchange exchange_job(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    Ll128Exchange job{.slots = slots(memory, others, aborted)};
    for (int peer = 0; peer < case_.number; ++peer) {
      job.sent[peer] = job.taken[peer] = case_.bytes();
      job.input[peer] = memory + input_ + peer * case_.bytes();
      job.output[peer] = memory + output_ + peer * case_.bytes();
      job.blocks[peer] = 1;
    }
    return job;
  }

  const Ll128Case case_;
  const int rank_;
  Image memory_, others_;
  std::vector<std::size_t> mine_, theirs_;
  std::size_t numbers_ = 0, input_ = 0, output_ = 0;
};

// Runs one rank's kernel, and says what went wrong, or nothing.
inline std::optional<std::string> run_alone(Bench& bench, const Ll128Case& lines, int rank,
                                            const std::uint32_t* aborted) {
  return bench.run_alone(LaidLl128(lines, rank), aborted);
}

inline std::vector<Ll128Case> ll128_cases() {
  std::vector<Ll128Case> cases;
  for (const auto& [dtype, op] :
       {std::pair(DType::kFloat32, ReduceOp::kSum), std::pair(DType::kBFloat16, ReduceOp::kAvg),
        std::pair(DType::kUInt8, ReduceOp::kMax), std::pair(DType::kFloat64, ReduceOp::kMin),
        std::pair(DType::kComplex128, ReduceOp::kProduct)}) {
    const std::int64_t unit = Ll128Slots::kUnitBytes / static_cast<std::int64_t>(size_of(dtype));
    int large = 5;  // to 8, in turns
    for (const std::int64_t count :
         {std::int64_t{1}, unit - 1, 17 * unit + 1, 33 * unit + 16, 63 * unit + 3}) {
      for (const int number : {2, 3, std::exchange(large, large == 8 ? 5 : large + 1)}) {
        for (const auto kind :
             {Ll128Case::kAllReduce, Ll128Case::kReduce, Ll128Case::kReduceScatter, Ll128Case::kExchange,
              Ll128Case::kAllReduceTwoShot, Ll128Case::kReduceTwoShot}) {
          if (number != 3 && (kind >= Ll128Case::kAllReduceTwoShot) != (number > 2)) continue;
          cases.push_back({kind, dtype, op, number, count, /*in_place=*/true});
          for (const std::size_t shift : {std::size_t{0}, std::min<std::size_t>(size_of(dtype), 8)})
            cases.push_back({kind, dtype, op, number, count, /*in_place=*/false, shift});
        }
      }
    }
  }
  return cases;
}

}  // namespace altorch
