#include "engine/peer/peer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/block_counts.h"
#include "common/dtype.h"
#include "common/rounding.h"
#include "engine/host_staged/messages.h"
#include "engine/host_staged/operands.h"

namespace altorch {
namespace {

constexpr std::int64_t kPackBytes = 16;
// What a block of threads should have to do at least.
constexpr std::int64_t kReducedByBlock = 4 << 10, kMovedByBlock = 8 << 10;

// What goes between two ranks, as both cut it: by so many blocks of threads, in chunks of so many bytes.
struct Cut {
  Cut(std::int64_t bytes, int most_blocks, std::int64_t room) {
    if (bytes == 0) return;
    blocks = static_cast<int>(std::clamp<std::int64_t>(divided_up(bytes, kMovedByBlock), 1, most_blocks));
    chunk = std::min(rounded_up(divided_up(bytes, blocks), kPackBytes), room);
  }
  int blocks = 0;
  std::int64_t chunk = kPackBytes;
};

}  // namespace

PeerRoute::PeerRoute(std::unique_ptr<Device> device, Memory memory, const PeerLayout& layout, int rank)
    : device_(std::move(device)),
      memory_(std::move(memory)),
      layout_(layout),
      rank_(rank),
      small_(*device_, small_places(), rank, layout.ranks, layout.pair_bytes, &note().aborted),
      numbers_(device_->allocate(
          sizeof(std::uint32_t) *
          static_cast<std::size_t>(layout.reduce_blocks + 3 * layout.ranks * layout.move_blocks))),
      sides_(*device_, 2) {
  const PeerLayout::Offsets at = layout.offsets();
  reductions_ = places(at.reductions, layout.reduce_blocks, 0, 0);
  moves_ = places(at.moves, layout.move_blocks, layout.reduce_blocks, layout.reduce_blocks);
  const int filled = layout.reduce_blocks + layout.move_blocks, taken = filled + layout.move_blocks;
  mail_.places =
      places(at.mail, layout.move_blocks, filled, layout.reduce_blocks + layout.ranks * layout.move_blocks);
  const BulkPlaces credits = places(at.mail, layout.move_blocks, taken, 0);
  std::copy(std::begin(credits.raised), std::end(credits.raised), mail_.taken_there);
  std::copy(std::begin(credits.awaited), std::end(credits.awaited), mail_.taken_here);
  device_->prepare_bulk_moves();
}

std::byte* PeerRoute::region(int owner, int source) const {
  return memory_.of[static_cast<std::size_t>(owner)].get() + layout_.region(owner, source);
}

SmallExchanges::Places PeerRoute::small_places() const {
  const PeerLayout::Offsets at = layout_.offsets();
  SmallExchanges::Places places;
  places.shape = layout_.small_shape();
  places.pair_shape = layout_.pair_shape();
  const auto words = [&](int owner, int source, std::size_t offset) -> std::uint64_t* {
    return owner == source && layout_.ranks > 1
               ? nullptr
               : reinterpret_cast<std::uint64_t*>(region(owner, source) + offset);
  };
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    places.posts.push_back(words(peer, rank_, at.small));
    places.areas.push_back(words(rank_, peer, at.small));
    places.pair_posts.push_back(words(peer, rank_, at.pairs));
    places.pair_areas.push_back(words(rank_, peer, at.pairs));
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
  std::vector<BlockMessage> messages;
  for (const Operation& operation : operations) {
    if (operation.kind == OpKind::kBarrier) continue;  // it waits on the host
    if (operation.is_message()) {
      add_messages(operation, rank_, layout_.ranks, *device_, stream, messages);
    } else if (SmallExchanges::fits(operation, layout_.ranks, layout_.small_bytes)) {
      small_.enqueue(operation, stream);
    } else if (operation.reduces()) {
      reduce(operation, stream);
    } else if (const auto rest = small_.enqueue_pairs(operation, stream)) {
      move(*rest, stream);
    }
  }
  copy_own_messages(messages, rank_, *device_, stream);
  if (!messages.empty()) exchange(messages, stream);
}

// In one kernel where no rank has two messages of one direction; else what is sent has a stream of its own beside what
// is taken, for a peer may want the second before it sends the first.
void PeerRoute::exchange(std::vector<BlockMessage>& messages, Stream stream) {
  const auto wave = [&](const auto& wanted, Stream on) {
    BulkMail job = mail_;
    bool sends[BulkPlaces::kMostRanks] = {}, takes[BulkPlaces::kMostRanks] = {};
    std::erase_if(messages, [&](const BlockMessage& message) {
      const int peer = message.peer;
      bool& busy = message.kind == OpKind::kSend ? sends[peer] : takes[peer];
      if (!wanted(message) || std::exchange(busy, true)) return false;
      const auto bytes = static_cast<std::int64_t>(message.bytes);
      const Cut cut(bytes, layout_.move_blocks, moves_.part);
      if (message.kind == OpKind::kSend) {
        job.input[peer] = message.data;
        job.sent[peer] = bytes;
        job.chunk_sent[peer] = cut.chunk;
        job.blocks_sent[peer] = cut.blocks;
      } else {
        job.output[peer] = message.data;
        job.taken[peer] = bytes;
        job.chunk_taken[peer] = cut.chunk;
        job.blocks_taken[peer] = cut.blocks;
        job.poison[peer] = message.poison;
      }
      return true;
    });
    const auto any = [](const int* blocks) {
      return std::any_of(blocks, blocks + BulkPlaces::kMostRanks, std::identity());
    };
    if (any(job.blocks_sent) || any(job.blocks_taken)) device_->move_mail(job, on);
  };
  const auto sent = [](const BlockMessage& message) { return message.kind == OpKind::kSend; };
  const auto taken = std::not_fn(sent);
  bool seen[2][BulkPlaces::kMostRanks] = {};
  const bool several = std::any_of(messages.begin(), messages.end(), [&](const BlockMessage& message) {
    return std::exchange(seen[sent(message) ? 1 : 0][message.peer], true);
  });
  if (!several) return wave([](const BlockMessage&) { return true; }, stream);
  const auto sides = sides_.fork(stream, 2);
  while (std::any_of(messages.begin(), messages.end(), sent)) wave(sent, sides[0]);
  while (std::any_of(messages.begin(), messages.end(), taken)) wave(taken, sides[1]);
  sides_.join(stream, sides);
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
      std::clamp<std::int64_t>(divided_up(all * element, ranks * kReducedByBlock), 1, layout_.reduce_blocks);
  job.share =
      std::min(rounded_up(divided_up(all, ranks * wanted), pack), moves_.part / element / pack * pack);
  job.stride = job.share;
  job.step = job.scatters ? job.share : ranks * job.share;
  job.tiles = divided_up(longest, job.step);
  job.blocks = static_cast<int>(std::min(wanted, job.tiles));
  job.scaled = operation.op == ReduceOp::kPremulSum;
  job.factor = operation.factor;
  job.poison = poison_of(operation.dtype);
  device_->reduce_bulk(job, operation.dtype, operation.op, stream);
}

void PeerRoute::move(const Operation& operation, Stream stream) {
  BulkMoves job;
  job.places = moves_;
  job.poison = poison_of(operation.dtype);
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
  int most = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    const Cut cut(std::max(job.sent[peer], job.taken[peer]), layout_.move_blocks, 2 * moves_.part);
    job.chunk[peer] = cut.chunk;
    job.blocks[peer] = cut.blocks;
    most = std::max(most, cut.blocks);
  }
  if (most > 0) device_->move_bulk(job, stream);
}

}  // namespace altorch
