// Collectives in lines as Device::fold_lines() and move_lines() take them, and their results. One rank's kernel can be run
// alone: the lines of the others are there already, with the numbers of their rounds.
#pragma once

#include "device/bench.h"
#include "device/expected.h"

namespace altorch {

struct LineCase {
  enum Kind { kAllReduce, kReduce, kReduceScatter, kMail } kind;
  DType dtype;
  ReduceOp op;
  int number;             // of ranks
  std::int64_t count;     // elements of the vector, or of each rank's block
  bool in_place = false;  // else what is read and written begins `shift` bytes behind where a pack would
  std::size_t shift = 0;

  // One block of 16 warps: a round is of 32 units. At most four, so that no slot is used twice.
  static constexpr std::int64_t kWarps = LinePlaces::kWarpsOfBlock;
  static constexpr std::size_t kPlace = static_cast<std::size_t>(kWarps * LinePlaces::kBytesOfWarp);

  bool reduces() const { return kind != kMail; }
  bool in_blocks() const { return kind == kReduceScatter || kind == kMail; }
  int root() const { return number - 1; }
  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(dtype)); }
  // What `rank` has for `wanting`, in bytes of its input.
  std::int64_t begin_for(int wanting) const { return in_blocks() ? wanting * bytes() : 0; }
  std::int64_t bytes_for(int wanting) const { return kind == kReduce && wanting != root() ? 0 : bytes(); }
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
    constexpr const char* names[] = {"all_reduce", "reduce", "reduce_scatter", "mail"};
    return std::string(names[kind]) + (in_place ? " in place of " : " of ") + name_of(dtype) + " x " +
           std::to_string(count) + ", shifted by " + std::to_string(shift) + ", rank " +
           std::to_string(rank) + " of " + std::to_string(number);
  }
};

// What one rank has in its own memory, and what the others' hold of it.
class LaidLines {
 public:
  LaidLines(const LineCase& lines, int rank) : case_(lines), rank_(rank) {
    for (int peer = 0; peer < lines.number; ++peer) {
      const bool own = peer == rank;
      mine_.push_back(own ? 0 : memory_.place(Bytes(LineCase::kPlace, 0)));
      theirs_.push_back(own ? 0 : others_.place(Bytes(LineCase::kPlace, 0)));
      if (own) continue;
      for_each_unit(lines.part(peer, rank),
                    [&](std::size_t at, const Bytes& unit) { memory_.write(mine_.back() + at, unit); });
      for_each_unit(lines.part(rank, peer), [&](std::size_t at, const Bytes& unit) {
        others_.expect(theirs_.back() + at, DType::kUInt8, unit);
      });
    }
    numbers_ = memory_.place(Bytes(8 * static_cast<std::size_t>(lines.number * LineCase::kWarps), 0));
    expect_numbers();
    input_ = memory_.place(lines.input(rank), lines.shift);
    const Bytes result = result_of();
    output_ = !lines.in_place
                  ? memory_.place(Bytes(result.size(), 0xEE), lines.shift)
                  : input_ + (lines.reduces() ? static_cast<std::size_t>(lines.begin_for(rank)) : 0);
    memory_.expect(output_, lines.dtype, result);
  }

  const Image& memory() const { return memory_; }
  const Image& others() const { return others_; }
  void enqueue(Device& device, std::byte* memory, std::byte* others, const std::uint32_t* aborted,
               Stream stream) const {
    if (case_.reduces())
      return device.fold_lines(fold(memory, others, aborted), case_.dtype, case_.op, stream);
    device.move_lines(mail(memory, others, aborted), stream);
  }

 private:
  // Units of data, each as it stands in a place: two rows of 32 lanes, of which every eighth carries the round's number and
  // one pack in two halves, and the others a pack a row. In place of a round's first one, where it is empty, a line with nothing
  // but the number.
  template <class Act>
  void for_each_unit(const Bytes& data, const Act& act) const {
    constexpr std::int64_t kUnit = LinePlaces::kUnitBytes, kRound = 2 * LineCase::kWarps;
    for (std::int64_t unit = 0; unit < rounds() * kRound; ++unit) {
      const std::int64_t round = unit / kRound, place = unit / LineCase::kWarps % 2,
                         warp = unit % LineCase::kWarps;
      if (place == 1 && unit * kUnit >= std::ssize(data)) continue;
      Bytes words(1024);
      for (std::int64_t i = 0; i < 1024; ++i) {
        const std::int64_t row = i / 512, lane = i % 512 / 16, byte = i % 16;
        std::int64_t at = -1;  // in the unit's data
        if (lane % 8 != 7) at = 16 * (lane - lane / 8 + 28 * row) + byte;
        if (lane % 8 == 7 && byte < 8) at = 16 * (56 + lane / 8) + 8 * row + byte;
        const bool is_empty = unit * kUnit >= std::ssize(data);
        if (is_empty && i >= 128) break;
        if (at < 0) {
          words[static_cast<std::size_t>(i)] = byte == 8 ? static_cast<unsigned char>(round + 1) : 0;
        } else if (unit * kUnit + at < std::ssize(data)) {
          words[static_cast<std::size_t>(i)] = data[static_cast<std::size_t>(unit * kUnit + at)];
        }
      }
      act(static_cast<std::size_t>(((warp * 4 + (round + 1) % 4) * 2 + place) * 1024), words);
    }
  }

  std::int64_t rounds() const {
    constexpr std::int64_t kRound = 2 * LineCase::kWarps * LinePlaces::kUnitBytes;
    return std::max<std::int64_t>(1, (case_.bytes() + kRound - 1) / kRound);
  }
  // With each of the others all rounds, by every warp; nothing with itself.
  void expect_numbers() {
    Bytes after(8 * static_cast<std::size_t>(case_.number * LineCase::kWarps), 0);
    for (int peer = 0; peer < case_.number; ++peer) {
      for (std::int64_t warp = 0; peer != rank_ && warp < LineCase::kWarps; ++warp)
        after[static_cast<std::size_t>(8 * (peer * LineCase::kWarps + warp))] =
            static_cast<unsigned char>(rounds());
    }
    memory_.expect(numbers_, DType::kUInt8, after);
  }

  Bytes result_of() const {
    std::vector<Bytes> parts;
    for (int rank = 0; rank < case_.number; ++rank) parts.push_back(case_.part(rank, rank_));
    if (case_.reduces()) return combined(case_.dtype, case_.op, parts);
    Bytes all;
    for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  LinePlaces places(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    LinePlaces made;
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
    made.warps = LineCase::kWarps;
    return made;
  }
  LineFold fold(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    LineFold job{.places = places(memory, others, aborted)};
    job.input = memory + input_;
    job.output = memory + output_;
    const auto element = static_cast<std::int64_t>(size_of(case_.dtype));
    for (int rank = 0; rank < case_.number; ++rank) {
      job.begins[rank] = case_.begin_for(rank) / element;
      job.counts[rank] = case_.bytes_for(rank) / element;
    }
    job.longest = case_.count;
    return job;
  }
  LineMail mail(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    LineMail job{.places = places(memory, others, aborted)};
    for (int peer = 0; peer < case_.number; ++peer) {
      job.sent[peer] = job.taken[peer] = case_.bytes();
      job.input[peer] = memory + input_ + peer * case_.bytes();
      job.output[peer] = memory + output_ + peer * case_.bytes();
      job.blocks[peer] = 1;
    }
    return job;
  }

  const LineCase case_;
  const int rank_;
  Image memory_, others_;
  std::vector<std::size_t> mine_, theirs_;
  std::size_t numbers_ = 0, input_ = 0, output_ = 0;
};

// Runs one rank's kernel, and says what went wrong, or nothing.
inline std::optional<std::string> run_alone(Bench& bench, const LineCase& lines, int rank,
                                            const std::uint32_t* aborted) {
  return bench.run_alone(LaidLines(lines, rank), aborted);
}

inline std::vector<LineCase> line_cases() {
  std::vector<LineCase> cases;
  for (const auto& [dtype, op] :
       {std::pair(DType::kFloat32, ReduceOp::kSum), std::pair(DType::kBFloat16, ReduceOp::kAvg),
        std::pair(DType::kUInt8, ReduceOp::kMax), std::pair(DType::kFloat64, ReduceOp::kMin),
        std::pair(DType::kComplex128, ReduceOp::kProduct)}) {
    const std::int64_t unit = LinePlaces::kUnitBytes / static_cast<std::int64_t>(size_of(dtype));
    for (const int number : {2, 3}) {
      for (const std::int64_t count :
           {std::int64_t{1}, unit - 1, 17 * unit + 1, 33 * unit + 16, 68 * unit + 3}) {
        for (const auto kind :
             {LineCase::kAllReduce, LineCase::kReduce, LineCase::kReduceScatter, LineCase::kMail}) {
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
