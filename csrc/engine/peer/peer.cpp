#include "engine/peer/peer.h"

#include <algorithm>

#include "common/block_counts.h"
#include "common/dtype.h"
#include "engine/host_staged/messages.h"
#include "engine/host_staged/operands.h"
#include "engine/poison_guard.h"

namespace altorch {
namespace {

constexpr std::int64_t kPackBytes = 16;
// What a block of threads should have to do at least.
constexpr std::int64_t kReducedByBlock = 16 << 10, kMovedByBlock = 16 << 10;

std::int64_t divided(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
std::int64_t rounded(std::int64_t value, std::int64_t to) { return divided(value, to) * to; }

}  // namespace

PeerRoute::PeerRoute(std::unique_ptr<Device> device, Memory memory, const PeerLayout& layout, int rank)
    : device_(std::move(device)),
      memory_(std::move(memory)),
      layout_(layout),
      rank_(rank),
      small_(*device_, small_places(), rank, layout.ranks, layout.pair_bytes, &note().aborted),
      numbers_(device_->allocate(
          sizeof(std::uint32_t) *
          static_cast<std::size_t>(layout.reduce_blocks + layout.ranks * layout.move_blocks))) {
  const PeerLayout::Offsets at = layout.offsets();
  reductions_ = places(at.reductions, layout.reduce_blocks, 0, 0);
  moves_ = places(at.moves, layout.move_blocks, layout.reduce_blocks, layout.reduce_blocks);
  device_->prepare_bulk_moves();
  device_->prepare_poison();
}

std::byte* PeerRoute::region(int owner, int source) const {
  return memory_.of[static_cast<std::size_t>(owner)].get() + layout_.region(source);
}

SmallExchanges::Places PeerRoute::small_places() const {
  const PeerLayout::Offsets at = layout_.offsets();
  SmallExchanges::Places places;
  places.shape = layout_.small_shape();
  places.pair_shape = layout_.pair_shape();
  const auto words = [](std::byte* memory) { return reinterpret_cast<std::uint64_t*>(memory); };
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    places.posts.push_back(words(region(peer, rank_) + at.small));
    places.areas.push_back(words(region(rank_, peer) + at.small));
    places.pair_posts.push_back(words(region(peer, rank_) + at.pairs));
    places.pair_areas.push_back(words(region(rank_, peer) + at.pairs));
  }
  return places;
}

BulkPlaces PeerRoute::places(std::size_t data, int blocks, int first_flag, int first_number) const {
  const std::size_t flags =
      layout_.offsets().flags + static_cast<std::size_t>(first_flag) * sizeof(std::uint32_t);
  const auto flags_at = [&](std::byte* memory) { return reinterpret_cast<std::uint32_t*>(memory + flags); };
  BulkPlaces made;
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    if (peer == rank_) continue;
    made.theirs[peer] = region(peer, rank_) + data;
    made.mine[peer] = region(rank_, peer) + data;
    made.raised[peer] = flags_at(region(peer, rank_));
    made.awaited[peer] = flags_at(region(rank_, peer));
  }
  made.numbers = reinterpret_cast<std::uint32_t*>(numbers_.get()) + first_number;
  made.aborted = &note().aborted;
  made.part = static_cast<std::int64_t>(layout_.part_bytes);
  made.rank = rank_;
  made.number = layout_.ranks;
  made.blocks = blocks;
  return made;
}

std::optional<Error> PeerRoute::failure() {
  if (auto why = note().read()) return Error(ErrorKind::kTransport, *why);
  return std::nullopt;
}

void PeerRoute::enqueue(std::span<const Operation> operations, Stream stream) {
  if (auto error = failure()) throw *error;
  for (const Operation& operation : operations) {
    if (!enqueue_one(operation, stream))
      poison_if(&note().aborted, operation, rank_, layout_.ranks, *device_, stream);
  }
}

bool PeerRoute::enqueue_one(const Operation& operation, Stream stream) {
  if (operation.kind == OpKind::kBarrier) return true;  // it waits on the host
  if (SmallExchanges::fits(operation, layout_.ranks, layout_.small_bytes)) {
    small_.enqueue(operation, stream);
    return true;
  }
  if (operation.reduces()) {
    reduce(operation, stream);
    return false;
  }
  const auto rest = small_.enqueue_pairs(operation, stream);
  if (rest) move(*rest, stream);
  return !rest;
}

// Shares of whole packs, so many that every block has a tile.
void PeerRoute::reduce(const Operation& operation, Stream stream) {
  const std::int64_t element = bytes_of(operation, 1), pack = std::max<std::int64_t>(1, kPackBytes / element);
  const int ranks = layout_.ranks;
  BulkReduction job;
  job.places = reductions_;
  job.input = input_at(operation, 0);
  job.output = operation.output;
  job.count = operation.count;
  job.scatters = operation.kind == OpKind::kReduceScatter;
  job.goes_to = job.scatters                        ? BulkReduction::kNobody
                : operation.kind == OpKind::kReduce ? operation.root
                                                    : BulkReduction::kAll;
  std::int64_t all = operation.count, longest = operation.count;
  if (job.scatters) {
    longest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t count = block_count(operation.input_counts, operation.count, rank);
      job.begins[rank + 1] = job.begins[rank] + count;
      longest = std::max(longest, count);
    }
    all = job.begins[ranks];
  }
  if (all == 0) return;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(divided(all * element, ranks * kReducedByBlock), 1, layout_.reduce_blocks);
  job.share = std::min(rounded(divided(all, ranks * wanted), pack), moves_.part / element / pack * pack);
  job.stride = job.share;
  job.step = job.scatters ? job.share : ranks * job.share;
  job.tiles = divided(longest, job.step);
  job.blocks = static_cast<int>(std::min(wanted, job.tiles));
  job.scaled = operation.op == ReduceOp::kPremulSum;
  job.factor = operation.factor;
  device_->reduce_bulk(job, operation.dtype, operation.op, stream);
}

void PeerRoute::move(const Operation& operation, Stream stream) {
  BulkMoves job;
  job.places = moves_;
  const auto send = [&](int peer, const void* data, std::int64_t bytes) {
    job.input[peer] = data;
    job.sent[peer] = bytes;
  };
  const auto take = [&](int peer, void* data, std::int64_t bytes) {
    job.output[peer] = data;
    job.taken[peer] = bytes;
  };
  const int ranks = layout_.ranks;
  if (operation.kind == OpKind::kAllGather) {
    for (int peer = 0; peer < ranks; ++peer) {
      const auto block = block_count(operation.output_counts, operation.count, peer);
      send(peer, operation.input,
           bytes_of(operation, block_count(operation.output_counts, operation.count, rank_)));
      take(peer, output_at(operation, block_offset(operation.output_counts, operation.count, peer)),
           bytes_of(operation, block));
    }
    if (job.output[rank_] == operation.input) send(rank_, nullptr, 0), take(rank_, nullptr, 0);
  } else if (operation.kind == OpKind::kBroadcast) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank_) continue;
      if (rank_ == operation.root) send(peer, operation.output, bytes_of(operation, operation.count));
      if (peer == operation.root) take(peer, operation.output, bytes_of(operation, operation.count));
    }
  } else {
    std::vector<BlockMessage> blocks;
    add_messages(operation, rank_, ranks, *device_, stream, blocks);
    for (const BlockMessage& block : blocks) {
      const auto bytes = static_cast<std::int64_t>(block.bytes);
      block.kind == OpKind::kSend ? send(block.peer, block.data, bytes) : take(block.peer, block.data, bytes);
    }
  }
  std::int64_t most = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    const std::int64_t larger = std::max(job.sent[peer], job.taken[peer]);
    const auto blocks = std::clamp<std::int64_t>(divided(larger, kMovedByBlock), 1, layout_.move_blocks);
    job.chunk[peer] =
        std::clamp<std::int64_t>(rounded(divided(larger, blocks), kPackBytes), kPackBytes, 2 * moves_.part);
    job.blocks[peer] = larger > 0 ? static_cast<int>(blocks) : 0;
    most = std::max(most, larger);
  }
  if (most > 0) device_->move_bulk(job, stream);
}

}  // namespace altorch
