// SPDX-License-Identifier: BSD-3-Clause
// Collectives in rounds as Device::reduce_two_shot(), reduce_one_shot() and exchange() take them,
// and their results. One rank's kernel can be run alone: the others have then raised their flags
// already, and left all their data.
#pragma once

#include "device/bench.h"
#include "device/expected.h"

namespace altorch {

struct BulkCase {
  // Of those that reduce: the first two in shares that are passed on.
  enum Kind { kAllReduce, kReduce, kOneShotForAll, kOneShotForRoot, kReduceScatter, kExchange } kind;
  DType dtype;
  ReduceOp op;
  int number;          // of ranks
  std::int64_t count;  // elements of the vector, or of each rank's block
  bool in_place = false;

  // No block has more than two tiles, so that no slot is used twice.
  static constexpr int kBlocks = 2;
  static constexpr std::int64_t kPart = 512;  // bytes

  bool reduces() const { return kind <= kReduceScatter; }
  bool is_one_shot() const { return reduces() && kind >= kOneShotForAll; }
  bool is_for_all() const { return kind == kAllReduce || kind == kOneShotForAll; }
  bool is_for_root() const { return kind == kReduce || kind == kOneShotForRoot; }
  std::int64_t element() const { return static_cast<std::int64_t>(size_of(dtype)); }
  Bytes input(int rank) const {
    const std::int64_t blocks = is_for_all() || is_for_root() ? 1 : number;
    return elements_of(dtype, static_cast<std::size_t>(blocks * count), 77 + static_cast<unsigned>(rank));
  }
  std::string text(int rank) const {
    constexpr const char* names[] = {"all_reduce",      "reduce",         "one-shot all_reduce",
                                     "one-shot reduce", "reduce_scatter", "exchange"};
    return std::string(names[kind]) + (in_place ? " in place of " : " of ") + name_of(dtype) + " x " +
           std::to_string(count) + ", rank " + std::to_string(rank) + " of " + std::to_string(number);
  }
};

// What one rank has in its own memory, and what the others' hold of it.
class LaidBulk {
 public:
  LaidBulk(const BulkCase& bulk, int rank) : case_(bulk), rank_(rank) {
    const Bytes own = bulk.input(rank);
    for (int peer = 0; peer < bulk.number; ++peer) {
      mine_.push_back(memory_.place(Bytes(kPlace, 0xCD)));
      target_.push_back(memory_.place(flags(peer == rank ? 0 : 1000)));
      if (peer == rank) memory_.ignore(target_.back(), 4 * kFlags);
      theirs_.push_back(others_.place(Bytes(kPlace, 0xEE)));
      raised_.push_back(others_.place(flags(0)));
    }
    numbers_ = memory_.place(Bytes(4 * 4 * static_cast<std::size_t>(bulk.number) * BulkCase::kBlocks, 0));
    memory_.ignore(numbers_, 4 * 4 * static_cast<std::size_t>(bulk.number) * BulkCase::kBlocks);
    for (const std::size_t flag : raised_) others_.ignore(flag, 4 * kFlags);
    input_ = memory_.place(own);
    bulk.is_one_shot() ? lay_one_shot(own) : bulk.reduces() ? lay_two_shot(own) : lay_blocks(own);
  }

  const Image& memory() const { return memory_; }
  const Image& others() const { return others_; }
  void enqueue(Device& device, std::byte* memory, std::byte* others, const std::uint32_t* aborted,
               Stream stream) const {
    if (case_.is_one_shot())
      return device.reduce_one_shot(one_shot_job(memory, others, aborted), case_.dtype, case_.op, stream);
    if (case_.reduces())
      return device.reduce_two_shot(reduction(memory, others, aborted), case_.dtype, case_.op, stream);
    device.exchange(exchange_job(memory, others, aborted), stream);
  }

 private:
  static constexpr std::size_t kFlags = 2 * BulkCase::kBlocks;  // that data is there, and that it was taken
  static constexpr std::size_t kPlace = 4 * BulkCase::kBlocks * BulkCase::kPart;
  static Bytes flags(std::uint32_t value) {
    Bytes all(4 * kFlags);
    for (std::size_t flag = 0; flag < kFlags; ++flag) reference::put(all.data(), flag, value);
    return all;
  }
  // In a place of so many slots, of the round before which there were `rounds`; a part, or two.
  static std::size_t slot(int rounds, int block, int slots, int parts) {
    return static_cast<std::size_t>(((rounds + 1) % slots * BulkCase::kBlocks + block) * parts) *
           BulkCase::kPart;
  }
  static Bytes piece(const Bytes& all, std::int64_t at, std::int64_t bytes) {
    const auto begin = std::min<std::int64_t>(at, std::ssize(all)),
               end = std::min(at + bytes, std::ssize(all));
    return Bytes(all.begin() + begin, all.begin() + end);
  }

  // In bytes from the beginning of the vector: a rank's share of a tile.
  std::int64_t share() const { return BulkCase::kPart / case_.element() * case_.element(); }
  std::int64_t step() const { return case_.number * share(); }
  Bytes share_of(const Bytes& all, std::int64_t tile, int rank) const {
    return piece(all, rank * share() + tile * step(), share());
  }
  std::int64_t tiles() const { return (case_.count * case_.element() + step() - 1) / step(); }
  // Of a vector: what a rank wants of it, in bytes.
  std::int64_t begin_for(int rank) const {
    return case_.kind == BulkCase::kReduceScatter ? rank * case_.count * case_.element() : 0;
  }
  std::int64_t bytes_for(int rank) const {
    return case_.is_for_root() && rank != root() ? 0 : case_.count * case_.element();
  }

  // Returns the vectors of all ranks, and lays what this rank makes of them.
  std::vector<Bytes> lay_result() {
    std::vector<Bytes> parts;
    for (int rank = 0; rank < case_.number; ++rank) parts.push_back(case_.input(rank));
    const Bytes result = piece(combined(case_.dtype, case_.op, parts), begin_for(rank_), bytes_for(rank_));
    output_ = case_.in_place ? input_ + static_cast<std::size_t>(begin_for(rank_))
                             : memory_.place(Bytes(result.size(), 0xEE));
    memory_.expect(output_, case_.dtype, result);
    return parts;
  }

  void lay_one_shot(const Bytes& own) {
    const std::vector<Bytes> parts = lay_result();
    const auto of = [&](const Bytes& all, int rank, std::int64_t at) {
      return piece(piece(all, begin_for(rank), bytes_for(rank)), at, share());
    };
    for (std::int64_t at = 0, turn = 0; at < case_.count * case_.element(); at += share(), ++turn) {
      const std::size_t data =
          slot(static_cast<int>(turn) / BulkCase::kBlocks, static_cast<int>(turn) % BulkCase::kBlocks, 4, 1);
      for (int peer = 0; peer < case_.number; ++peer) {
        if (peer == rank_) continue;
        const auto index = static_cast<std::size_t>(peer);
        memory_.write(mine_[index] + data, of(parts[index], rank_, at));
        others_.expect(theirs_[index] + data, DType::kUInt8, of(own, peer, at));
      }
    }
  }

  void lay_two_shot(const Bytes& own) {
    const std::vector<Bytes> parts = lay_result();
    const Bytes sum = combined(case_.dtype, case_.op, parts);
    const bool takes_all = bytes_for(rank_) > 0;
    for (std::int64_t tile = 0; tile < tiles(); ++tile) {
      const int at = static_cast<int>(tile) % BulkCase::kBlocks,
                rounds = static_cast<int>(tile) / BulkCase::kBlocks;
      for (int peer = 0; peer < case_.number; ++peer) {
        if (peer == rank_) continue;
        const auto index = static_cast<std::size_t>(peer);
        memory_.write(mine_[index] + slot(rounds, at, 2, 2), share_of(parts[index], tile, rank_));
        others_.expect(theirs_[index] + slot(rounds, at, 2, 2), DType::kUInt8, share_of(own, tile, peer));
        const std::size_t passed = slot(rounds + 1, at, 2, 2) + BulkCase::kPart;
        if (takes_all) memory_.write(mine_[index] + passed, share_of(sum, tile, peer));
        if (bytes_for(peer) > 0)
          others_.expect(theirs_[index] + passed, case_.dtype, share_of(sum, tile, rank_));
      }
    }
  }

  // A block for each rank, one for this rank itself too.
  void lay_blocks(const Bytes& own) {
    const std::int64_t block = case_.count * case_.element();
    Bytes result;
    for (int peer = 0; peer < case_.number; ++peer) {
      const Bytes taken = piece(case_.input(peer), rank_ * block, block);
      result.insert(result.end(), taken.begin(), taken.end());
      if (peer == rank_) continue;
      const auto index = static_cast<std::size_t>(peer);
      for (std::int64_t at = 0, turn = 0; at < block; at += BulkCase::kPart, ++turn) {
        const std::size_t data = slot(static_cast<int>(turn) / BulkCase::kBlocks,
                                      static_cast<int>(turn) % BulkCase::kBlocks, 4, 1);
        memory_.write(mine_[index] + data, piece(taken, at, BulkCase::kPart));
        others_.expect(theirs_[index] + data, DType::kUInt8,
                       piece(piece(own, peer * block, block), at, BulkCase::kPart));
      }
    }
    output_ = case_.in_place ? input_ : memory_.place(Bytes(result.size(), 0xEE));
    memory_.expect(output_, DType::kUInt8, result);
  }
  int root() const { return case_.number - 1; }

  BulkSlots slots(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    BulkSlots made;
    for (int peer = 0; peer < case_.number; ++peer) {
      const auto index = static_cast<std::size_t>(peer);
      made.theirs[peer] = others + theirs_[index];
      made.mine[peer] = memory + mine_[index];
      if (peer == rank_ && !case_.is_one_shot()) continue;
      made.raised[peer] =
          reinterpret_cast<std::uint32_t*>(peer == rank_ ? memory + target_[index] : others + raised_[index]);
      made.awaited[peer] = reinterpret_cast<std::uint32_t*>(memory + target_[index]);
    }
    made.numbers = reinterpret_cast<std::uint32_t*>(memory + numbers_);
    made.aborted = aborted;
    made.part = BulkCase::kPart;
    made.rank = rank_;
    made.number = case_.number;
    made.blocks = BulkCase::kBlocks;
    return made;
  }
  TwoShotReduce reduction(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    TwoShotReduce job;
    job.slots = slots(memory, others, aborted);
    job.input = memory + input_;
    job.output = memory + output_;
    job.count = case_.count;
    job.share = job.stride = share() / case_.element();
    job.step = step() / case_.element();
    job.tiles = tiles();
    job.goes_to = case_.is_for_all() ? TwoShotReduce::kAll : root();
    job.blocks = static_cast<int>(std::min<std::int64_t>(BulkCase::kBlocks, job.tiles));
    return job;
  }
  OneShotReduce one_shot_job(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    OneShotReduce job;
    job.slots = slots(memory, others, aborted);
    job.input = memory + input_;
    job.output = memory + output_;
    for (int rank = 0; rank < case_.number; ++rank) {
      job.begins[rank] = begin_for(rank) / case_.element();
      job.counts[rank] = bytes_for(rank) / case_.element();
    }
    job.longest = case_.count;
    job.chunk = share() / case_.element();
    job.blocks = BulkCase::kBlocks;
    return job;
  }
  Exchange exchange_job(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    Exchange job;
    job.slots = slots(memory, others, aborted);
    for (int peer = 0; peer < case_.number; ++peer) {
      job.sent[peer] = job.taken[peer] = case_.count * case_.element();
      job.input[peer] = memory + input_ + peer * job.sent[peer];
      job.output[peer] = memory + output_ + peer * job.taken[peer];
      job.chunk_sent[peer] = job.chunk_taken[peer] = BulkCase::kPart;
      job.blocks_sent[peer] = job.blocks_taken[peer] = BulkCase::kBlocks;
      job.in_place[peer] = case_.in_place;
    }
    return job;
  }

  const BulkCase case_;
  const int rank_;
  Image memory_, others_;
  std::vector<std::size_t> mine_, target_, theirs_, raised_;
  std::size_t numbers_ = 0, input_ = 0, output_ = 0;
};

// Runs one rank's kernel, and says what went wrong, or nothing.
inline std::optional<std::string> run_alone(Bench& bench, const BulkCase& bulk, int rank,
                                            const std::uint32_t* aborted) {
  return bench.run_alone(LaidBulk(bulk, rank), aborted);
}

inline std::vector<BulkCase> bulk_cases() {
  std::vector<BulkCase> cases;
  for (const auto& [dtype, op] :
       {std::pair(DType::kFloat32, ReduceOp::kSum), std::pair(DType::kBFloat16, ReduceOp::kAvg),
        std::pair(DType::kUInt8, ReduceOp::kMax), std::pair(DType::kComplex128, ReduceOp::kProduct)}) {
    const std::int64_t part = BulkCase::kPart / static_cast<std::int64_t>(size_of(dtype));
    int large = 5;  // to 8, in turns
    for (const std::int64_t count : {std::int64_t{1}, part - 1, 2 * part + 3, 4 * part}) {
      for (const int number : {2, 3, large++}) {
        for (const bool in_place : {false, true}) {
          for (const auto kind : {BulkCase::kAllReduce, BulkCase::kReduce, BulkCase::kOneShotForAll,
                                  BulkCase::kOneShotForRoot, BulkCase::kReduceScatter})
            cases.push_back({kind, dtype, op, number, count, in_place});
        }
        for (const bool in_place : {false, true})
          cases.push_back({BulkCase::kExchange, dtype, op, number, count, in_place});
      }
    }
  }
  return cases;
}

}  // namespace altorch
