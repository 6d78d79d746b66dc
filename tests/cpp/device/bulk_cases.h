// Collectives in rounds as Device::reduce_bulk(), move_bulk() and move_mail() take them, and their results. One rank's
// kernel can be run alone: the others have then raised their flags already, and left all their data.
#pragma once

#include "device/bench.h"
#include "device/expected.h"

namespace altorch {

struct BulkCase {
  enum Kind { kAllReduce, kReduce, kReduceScatter, kExchange, kMail } kind;
  DType dtype;
  ReduceOp op;
  int number;          // of ranks
  std::int64_t count;  // elements of the vector, or of each rank's block
  bool in_place = false;

  // No block has more than two tiles, so that no slot is used twice.
  static constexpr int kBlocks = 2;
  static constexpr std::int64_t kPart = 512;  // bytes

  bool reduces() const { return kind <= kReduceScatter; }
  std::int64_t element() const { return static_cast<std::int64_t>(size_of(dtype)); }
  Bytes input(int rank) const {
    const std::int64_t blocks = kind == kAllReduce || kind == kReduce ? 1 : number;
    return elements_of(dtype, static_cast<std::size_t>(blocks * count), 77 + static_cast<unsigned>(rank));
  }
  std::string text(int rank) const {
    constexpr const char* names[] = {"all_reduce", "reduce", "reduce_scatter", "exchange", "mail"};
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
      awaited_.push_back(memory_.place(flags(1000)));
      theirs_.push_back(others_.place(Bytes(kPlace, 0xEE)));
      raised_.push_back(others_.place(flags(0)));
    }
    numbers_ = memory_.place(Bytes(4 * 2 * static_cast<std::size_t>(bulk.number) * BulkCase::kBlocks, 0));
    memory_.ignore(numbers_, 4 * 2 * static_cast<std::size_t>(bulk.number) * BulkCase::kBlocks);
    for (const std::size_t flag : raised_) others_.ignore(flag, 4 * BulkCase::kBlocks);
    input_ = memory_.place(own);
    bulk.reduces() ? lay_reduction(own) : lay_blocks(own);
  }

  const Image& memory() const { return memory_; }
  const Image& others() const { return others_; }
  void enqueue(Device& device, std::byte* memory, std::byte* others, const std::uint32_t* aborted,
               Stream stream) const {
    if (case_.reduces())
      return device.reduce_bulk(reduction(memory, others, aborted), case_.dtype, case_.op, stream);
    if (case_.kind == BulkCase::kExchange) return device.move_bulk(moves(memory, others, aborted), stream);
    device.move_mail(mail(memory, others, aborted), stream);
  }

 private:
  static constexpr std::size_t kPlace = 4 * BulkCase::kBlocks * BulkCase::kPart;
  static Bytes flags(std::uint32_t value) {
    Bytes all(4 * BulkCase::kBlocks);
    for (std::size_t block = 0; block < BulkCase::kBlocks; ++block) reference::put(all.data(), block, value);
    return all;
  }
  // In a place, of the round before which there were `rounds`; a part, or two.
  static std::size_t slot(int rounds, int block, int parts) {
    return static_cast<std::size_t>(((rounds + 1) % 2 * BulkCase::kBlocks + block) * parts) * BulkCase::kPart;
  }
  static Bytes piece(const Bytes& all, std::int64_t at, std::int64_t bytes) {
    const auto begin = std::min<std::int64_t>(at, std::ssize(all)),
               end = std::min(at + bytes, std::ssize(all));
    return Bytes(all.begin() + begin, all.begin() + end);
  }

  // In bytes from the beginning of the vector: a rank's share of a tile.
  std::int64_t share() const { return BulkCase::kPart / case_.element() * case_.element(); }
  std::int64_t step() const {
    return case_.kind == BulkCase::kReduceScatter ? share() : case_.number * share();
  }
  Bytes share_of(const Bytes& all, std::int64_t tile, int rank) const {
    if (case_.kind != BulkCase::kReduceScatter) return piece(all, rank * share() + tile * step(), share());
    const std::int64_t block = case_.count * case_.element();
    return piece(piece(all, rank * block, block), tile * step(), share());
  }
  std::int64_t tiles() const { return (case_.count * case_.element() + step() - 1) / step(); }

  void lay_reduction(const Bytes& own) {
    std::vector<Bytes> parts;
    for (int rank = 0; rank < case_.number; ++rank) parts.push_back(case_.input(rank));
    const Bytes sum = combined(case_.dtype, case_.op, parts);
    const bool at_root = rank_ == root();
    const bool scatters = case_.kind == BulkCase::kReduceScatter;
    const bool takes_all = case_.kind == BulkCase::kAllReduce || (case_.kind == BulkCase::kReduce && at_root);
    const std::int64_t block = case_.count * case_.element();
    const Bytes result = scatters ? piece(sum, rank_ * block, block) : takes_all ? sum : Bytes();
    output_ = !case_.in_place ? memory_.place(Bytes(result.size(), 0xEE))
              : scatters      ? input_ + static_cast<std::size_t>(rank_ * block)
                              : input_;
    memory_.expect(output_, case_.dtype, result);
    for (std::int64_t tile = 0; tile < tiles(); ++tile) {
      const int at = static_cast<int>(tile) % BulkCase::kBlocks,
                rounds = static_cast<int>(tile) / BulkCase::kBlocks;
      for (int peer = 0; peer < case_.number; ++peer) {
        if (peer == rank_) continue;
        const auto index = static_cast<std::size_t>(peer);
        memory_.write(mine_[index] + slot(rounds, at, 2), share_of(parts[index], tile, rank_));
        others_.expect(theirs_[index] + slot(rounds, at, 2), DType::kUInt8, share_of(own, tile, peer));
        const std::size_t passed = slot(rounds + 1, at, 2) + BulkCase::kPart;
        if (takes_all) memory_.write(mine_[index] + passed, share_of(sum, tile, peer));
        if (case_.kind == BulkCase::kAllReduce || (case_.kind == BulkCase::kReduce && peer == root()))
          others_.expect(theirs_[index] + passed, case_.dtype, share_of(sum, tile, rank_));
      }
    }
  }

  // A block for each rank, one for this rank itself too, unless they are messages.
  void lay_blocks(const Bytes& own) {
    const std::int64_t block = case_.count * case_.element();
    const bool mail = case_.kind == BulkCase::kMail;
    const int parts = mail ? 1 : 2;
    Bytes result;
    for (int peer = 0; peer < case_.number; ++peer) {
      const Bytes taken = mail && peer == rank_ ? Bytes(static_cast<std::size_t>(block), 0xEE)
                                                : piece(case_.input(peer), rank_ * block, block);
      result.insert(result.end(), taken.begin(), taken.end());
      if (peer == rank_) continue;
      const auto index = static_cast<std::size_t>(peer);
      for (std::int64_t at = 0, turn = 0; at < block; at += chunk(), ++turn) {
        const std::size_t data = slot(static_cast<int>(turn) / BulkCase::kBlocks,
                                      static_cast<int>(turn) % BulkCase::kBlocks, parts);
        memory_.write(mine_[index] + data, piece(taken, at, chunk()));
        others_.expect(theirs_[index] + data, DType::kUInt8,
                       piece(piece(own, peer * block, block), at, chunk()));
      }
    }
    output_ = memory_.place(Bytes(result.size(), 0xEE));
    memory_.expect(output_, DType::kUInt8, result);
  }
  std::int64_t chunk() const { return case_.kind == BulkCase::kMail ? BulkCase::kPart : 2 * BulkCase::kPart; }
  int root() const { return case_.number - 1; }

  BulkPlaces places(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    BulkPlaces made;
    for (int peer = 0; peer < case_.number; ++peer) {
      const auto index = static_cast<std::size_t>(peer);
      made.theirs[peer] = others + theirs_[index];
      made.mine[peer] = memory + mine_[index];
      made.raised[peer] = reinterpret_cast<std::uint32_t*>(others + raised_[index]);
      made.awaited[peer] = reinterpret_cast<std::uint32_t*>(memory + awaited_[index]);
    }
    made.numbers = reinterpret_cast<std::uint32_t*>(memory + numbers_);
    made.aborted = aborted;
    made.part = BulkCase::kPart;
    made.rank = rank_;
    made.number = case_.number;
    made.blocks = BulkCase::kBlocks;
    return made;
  }
  BulkReduction reduction(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    BulkReduction job;
    job.places = places(memory, others, aborted);
    job.input = memory + input_;
    job.output = memory + output_;
    job.count = case_.count;
    job.share = job.stride = share() / case_.element();
    job.step = step() / case_.element();
    job.tiles = tiles();
    job.goes_to = case_.kind == BulkCase::kAllReduce ? BulkReduction::kAll
                  : case_.kind == BulkCase::kReduce  ? root()
                                                     : BulkReduction::kNobody;
    job.scatters = case_.kind == BulkCase::kReduceScatter;
    for (int rank = 0; rank <= case_.number; ++rank) job.begins[rank] = rank * case_.count;
    job.blocks = static_cast<int>(std::min<std::int64_t>(BulkCase::kBlocks, job.tiles));
    return job;
  }
  BulkMoves moves(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    BulkMoves job;
    job.places = places(memory, others, aborted);
    for (int peer = 0; peer < case_.number; ++peer) {
      job.sent[peer] = job.taken[peer] = case_.count * case_.element();
      job.input[peer] = memory + input_ + peer * job.sent[peer];
      job.output[peer] = memory + output_ + peer * job.taken[peer];
      job.chunk[peer] = chunk();
      job.blocks[peer] = BulkCase::kBlocks;
    }
    return job;
  }
  BulkMail mail(std::byte* memory, std::byte* others, const std::uint32_t* aborted) const {
    const BulkMoves blocks = moves(memory, others, aborted);
    BulkMail job;
    job.places = blocks.places;
    for (int peer = 0; peer < case_.number; ++peer) {
      if (peer == rank_) continue;
      job.taken_there[peer] = blocks.places.raised[peer];  // nobody looks at what it says
      job.taken_here[peer] = blocks.places.awaited[peer];
      job.input[peer] = blocks.input[peer];
      job.output[peer] = blocks.output[peer];
      job.sent[peer] = job.taken[peer] = blocks.sent[peer];
      job.chunk_sent[peer] = job.chunk_taken[peer] = chunk();
      job.blocks_sent[peer] = job.blocks_taken[peer] = BulkCase::kBlocks;
    }
    return job;
  }

  const BulkCase case_;
  const int rank_;
  Image memory_, others_;
  std::vector<std::size_t> mine_, awaited_, theirs_, raised_;
  std::size_t numbers_ = 0, input_ = 0, output_ = 0;
};

// Runs one rank's kernel, and says what went wrong, or nothing.
inline std::optional<std::string> run_alone(Bench& bench, const BulkCase& bulk, int rank,
                                            const std::uint32_t* aborted) {
  const LaidBulk laid(bulk, rank);
  return bench.run(laid.memory(), laid.others(), [&](std::byte* memory, std::byte* others, Stream stream) {
    laid.enqueue(bench.device(), memory, others, aborted, stream);
  });
}

inline std::vector<BulkCase> bulk_cases() {
  std::vector<BulkCase> cases;
  for (const auto& [dtype, op] :
       {std::pair(DType::kFloat32, ReduceOp::kSum), std::pair(DType::kBFloat16, ReduceOp::kAvg),
        std::pair(DType::kUInt8, ReduceOp::kMax), std::pair(DType::kComplex128, ReduceOp::kProduct)}) {
    const std::int64_t part = BulkCase::kPart / static_cast<std::int64_t>(size_of(dtype));
    for (const int number : {2, 3, 5}) {
      for (const std::int64_t count : {std::int64_t{1}, part - 1, 2 * part + 3, 4 * part}) {
        for (const bool in_place : {false, true}) {
          for (const auto kind : {BulkCase::kAllReduce, BulkCase::kReduce, BulkCase::kReduceScatter})
            cases.push_back({kind, dtype, op, number, count, in_place});
        }
        cases.push_back({BulkCase::kExchange, dtype, op, number, count});
        cases.push_back({BulkCase::kMail, dtype, op, number, count});
      }
    }
  }
  return cases;
}

}  // namespace altorch
