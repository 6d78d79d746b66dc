// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/peer/peer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/dtype.h"
#include "base/rounding.h"
#include "base/shape.h"
#include "gpu/host_staged/messages.h"
#include "gpu/host_staged/operands.h"

namespace altorch {
namespace {

constexpr std::int64_t kPackBytes = 16;
// What a block of threads should have to do at least; and of that, at once: so much that a flag is
// nothing beside it, and several times, so that it is taken while the next is under way.
constexpr std::int64_t kReducedByBlock = 4 << 10, kReducedOneShotByBlock = 16 << 10, kMovedByBlock = 8 << 10;
constexpr std::int64_t kSmallestChunk = 16 << 10, kChunks = 2;
// In elements. A larger one is a pack of its own.
std::int64_t pack_of(const Operation& operation) {
  return std::max<std::int64_t>(1, kPackBytes / bytes_of(operation, 1));
}
// What an LL128 unit holds, in elements.
std::int64_t unit_of(const Operation& operation) {
  if (is_quantized(operation.op)) return QuantizedChunks::kUnit;
  return Ll128Slots::kUnitBytes / bytes_of(operation, 1);
}
int blocks_for(std::int64_t bytes, std::int64_t each, int most) {
  return bytes == 0 ? 0 : static_cast<int>(std::clamp<std::int64_t>(divided_up(bytes, each), 1, most));
}
std::int64_t chunk_of(std::int64_t bytes, int blocks, std::int64_t room) {
  if (bytes == 0) return kPackBytes;
  const std::int64_t each = divided_up(bytes, blocks);
  const std::int64_t wanted = std::max(divided_up(each, kChunks), std::min(each, kSmallestChunk));
  return std::min(rounded_up(wanted, kPackBytes), room);
}

}  // namespace

PeerRoute::PeerRoute(std::unique_ptr<Device> device, Memory memory, const PeerLayout& layout, int rank,
                     Rules rules)
    : device_(std::move(device)),
      memory_(std::move(memory)),
      layout_(layout),
      rank_(rank),
      rules_(std::move(rules)),
      ll_(*device_, ll_slots(), rank, layout.ranks, layout.pair_bytes, &note().aborted),
      norms_(*device_, norm_slots(), rank, layout.ranks, &note().aborted),
      numbers_(device_->allocate(
          sizeof(std::uint32_t) *
          static_cast<std::size_t>(layout.two_shot_blocks + 6 * layout.one_shot_blocks +
                                   4 * layout.ranks * (layout.exchange_blocks + layout.message_blocks)))),
      ll128_numbers_(layout.ll128_blocks == 0
                         ? nullptr
                         : device_->allocate(sizeof(std::uint64_t) *
                                             static_cast<std::size_t>(layout.ranks * layout.ll128_blocks *
                                                                      Ll128Slots::kWarpsOfBlock))),
      ll128_(ll128_slots()),
      sides_(*device_, 2) {
  const PeerLayout::Offsets at = layout.offsets();
  const int one_shot = layout.two_shot_blocks, exchange = one_shot + 2 * layout.one_shot_blocks,
            messages = exchange + 2 * layout.exchange_blocks, counted = one_shot + 6 * layout.one_shot_blocks;
  // Protocols that LL128 replaces have no slots.
  two_shot_ = slots(at.two_shot, at.one_shot, layout.two_shot_blocks, 0, 0);
  one_shot_ = slots(at.one_shot, at.exchange, layout.one_shot_blocks, one_shot, one_shot);
  one_shot_.raised[rank] = one_shot_.numbers + 4 * layout.one_shot_blocks;
  one_shot_.awaited[rank] = one_shot_.raised[rank];
  exchange_ = slots(at.exchange, at.messages, layout.exchange_blocks, exchange, counted);
  messages_ = slots(at.messages, at.end, layout.message_blocks, messages,
                    counted + 4 * layout.ranks * layout.exchange_blocks);
  device_->prepare_exchange();
}

std::byte* PeerRoute::region(int owner, int source) const {
  return memory_.of[static_cast<std::size_t>(owner)].get() + layout_.region(owner, source);
}

std::uint64_t* PeerRoute::words(int owner, int source, std::size_t offset) const {
  if (owner == source && layout_.ranks > 1) return nullptr;
  return reinterpret_cast<std::uint64_t*>(region(owner, source) + offset);
}

NormedSums::Slots PeerRoute::norm_slots() const {
  const std::size_t offset = layout_.offsets().norms;
  NormedSums::Slots slots{.shape = layout_.norm_shape(), .send_slots = {}, .receive_slots = {}};
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    slots.send_slots.push_back(words(peer, rank_, offset));
    slots.receive_slots.push_back(words(rank_, peer, offset));
  }
  return slots;
}

LlExchanges::Slots PeerRoute::ll_slots() const {
  const PeerLayout::Offsets at = layout_.offsets();
  LlExchanges::Slots slots;
  slots.shape = layout_.ll_shape();
  slots.pair_shape = layout_.pair_shape();
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    slots.send_slots.push_back(words(peer, rank_, at.ll));
    slots.receive_slots.push_back(words(rank_, peer, at.ll));
    slots.pair_send_slots.push_back(words(peer, rank_, at.pairs));
    slots.pair_receive_slots.push_back(words(rank_, peer, at.pairs));
  }
  return slots;
}

BulkSlots PeerRoute::slots(std::size_t data, std::size_t end, int blocks, int first_flag,
                           int first_number) const {
  const std::size_t flags =
      layout_.offsets().flags + static_cast<std::size_t>(first_flag) * sizeof(std::uint32_t);
  const auto flags_at = [&](std::byte* memory) { return reinterpret_cast<std::uint32_t*>(memory + flags); };
  BulkSlots made;
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    if (peer == rank_ || data == end) continue;
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

Ll128Slots PeerRoute::ll128_slots() const {
  Ll128Slots made;
  const std::size_t ll128 = layout_.offsets().ll128;
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    if (peer == rank_) continue;
    made.theirs[peer] = reinterpret_cast<std::uint64_t*>(region(peer, rank_) + ll128);
    made.mine[peer] = reinterpret_cast<std::uint64_t*>(region(rank_, peer) + ll128);
  }
  made.numbers = reinterpret_cast<std::uint64_t*>(ll128_numbers_.get());
  made.aborted = &note().aborted;
  made.rank = rank_;
  made.number = layout_.ranks;
  made.warps = layout_.ll128_blocks * Ll128Slots::kWarpsOfBlock;
  return made;
}

// A warp for each unit, while there are as many.
int PeerRoute::ll128_blocks_for(std::int64_t bytes, int most) {
  constexpr std::int64_t kBlock = Ll128Slots::kWarpsOfBlock * Ll128Slots::kUnitBytes;
  return std::max(1, blocks_for(bytes, kBlock, most));
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
    switch (const PeerProtocolId id = protocol_for(operation).id) {
      case PeerProtocolId::kNorm:
        norms_.enqueue(operation, stream);
        break;
      case PeerProtocolId::kLl:
        ll_.enqueue(operation, stream);
        break;
      case PeerProtocolId::kLl128:
        if (operation.reduces()) {
          reduce_by_ll128(operation, /*two_shot=*/false, stream);
        } else {
          move(operation, id, stream);
        }
        break;
      case PeerProtocolId::kLl128TwoShot:
        reduce_by_ll128(operation, /*two_shot=*/true, stream);
        break;
      case PeerProtocolId::kTwoShot:
        reduce_two_shot(operation, stream);
        break;
      case PeerProtocolId::kOneShot:
        reduce_one_shot(operation, stream);
        break;
      case PeerProtocolId::kExchange:
        move(operation, id, stream);
        break;
      case PeerProtocolId::kPairs:
        if (const auto rest = ll_.enqueue_pairs(operation, stream)) move(*rest, id, stream);
        break;
      case PeerProtocolId::kMessages:
        add_messages(operation, rank_, layout_.ranks, *device_, stream, messages);
        break;
    }
  }
  copy_own_messages(messages, rank_, *device_, stream);
  if (!messages.empty()) exchange(messages, stream);
}

const PeerProtocol& PeerRoute::protocol_for(const Operation& operation) const {
  return protocol_of(peer_protocols(), operation, layout_,
                     rules_.gpu_protocol(operation, {.ranks = layout_.ranks}, name()));
}

void PeerRoute::add_sent(Exchange& job, int peer, const void* data, std::int64_t bytes) const {
  job.input[peer] = data;
  job.sent[peer] = bytes;
  job.blocks_sent[peer] = blocks_for(bytes, kMovedByBlock, job.slots.blocks);
  job.chunk_sent[peer] = chunk_of(bytes, job.blocks_sent[peer], job.slots.part);
}

void PeerRoute::add_taken(Exchange& job, int peer, void* data, std::int64_t bytes,
                          std::uint64_t poison) const {
  job.output[peer] = data;
  job.taken[peer] = bytes;
  job.blocks_taken[peer] = blocks_for(bytes, kMovedByBlock, job.slots.blocks);
  job.chunk_taken[peer] = chunk_of(bytes, job.blocks_taken[peer], job.slots.part);
  job.poison[peer] = poison;
}

// In one kernel where no rank has two messages of one direction; else what is sent has a stream of
// its own beside what is taken, for a peer may want the second before it sends the first.
void PeerRoute::exchange(std::vector<BlockMessage>& messages, Stream stream) {
  const auto wave = [&](const auto& wanted, Stream on) {
    Exchange job{.slots = messages_};
    bool sends[BulkSlots::kMostRanks] = {}, takes[BulkSlots::kMostRanks] = {};
    std::erase_if(messages, [&](const BlockMessage& message) {
      const int peer = message.peer;
      bool& busy = message.kind == OpKind::kSend ? sends[peer] : takes[peer];
      if (!wanted(message) || std::exchange(busy, true)) return false;
      const auto bytes = static_cast<std::int64_t>(message.bytes);
      if (message.kind == OpKind::kSend) {
        add_sent(job, peer, message.data, bytes);
      } else {
        add_taken(job, peer, message.data, bytes, message.poison);
      }
      return true;
    });
    run(job, on);
  };
  const auto sent = [](const BlockMessage& message) { return message.kind == OpKind::kSend; };
  const auto taken = std::not_fn(sent);
  bool seen[2][BulkSlots::kMostRanks] = {};
  const bool several = std::any_of(messages.begin(), messages.end(), [&](const BlockMessage& message) {
    return std::exchange(seen[sent(message) ? 1 : 0][message.peer], true);
  });
  if (!several) return wave([](const BlockMessage&) { return true; }, stream);
  const auto sides = sides_.fork(stream, 2);
  SideStreams::Join join(sides_, stream, sides);
  while (std::any_of(messages.begin(), messages.end(), sent)) wave(sent, sides[0]);
  while (std::any_of(messages.begin(), messages.end(), taken)) wave(taken, sides[1]);
  join.now();
}

template <class Fold>
void PeerRoute::describe(Fold& job, const Operation& operation) const {
  job.input = input_at(operation, 0);
  job.output = operation.output;
  for (int rank = 0; rank < layout_.ranks; ++rank) {
    const Range wanted = part_for(operation, rank_, rank).value_or(Range{});
    job.begins[rank] = wanted.begin;
    job.counts[rank] = wanted.count;
  }
  job.scaled = operation.op == ReduceOp::kPremulSum;
  job.factor = operation.factor;
  job.poison = poison_of(operation.dtype);
}

void PeerRoute::reduce_by_ll128(const Operation& operation, bool two_shot, Stream stream) {
  if (longest_block(operation) == 0) return;
  Ll128Reduce job{.slots = ll128_};
  describe(job, operation);
  if (two_shot) split_for_two_shot(job, operation);
  count_units(job, unit_of(operation));
  const int most = is_quantized(operation.op) ? layout_.ll128_blocks : layout_.reducing_ll128_blocks;
  job.blocks = ll128_blocks_for(job.most_units * Ll128Slots::kUnitBytes, most);
  job.threads = layout_.ll128_threads(job.blocks);
  device_->reduce_ll128(job, operation.dtype, operation.op, stream);
}

void PeerRoute::reduce_one_shot(const Operation& operation, Stream stream) {
  const std::int64_t longest = longest_block(operation);
  if (longest == 0) return;
  const std::int64_t element = bytes_of(operation, 1), bytes = longest * element;
  OneShotReduce job{.slots = one_shot_};
  describe(job, operation);
  job.longest = longest;
  job.blocks = blocks_for(bytes, kReducedOneShotByBlock, layout_.one_shot_blocks);
  job.chunk = chunk_of(bytes, job.blocks, one_shot_.part) / element;
  device_->reduce_one_shot(job, operation.dtype, operation.op, stream);
}

// Every rank reduces a share of whole packs, or of whole units of packs in 8 bits, and passes it
// on.
void PeerRoute::split_for_two_shot(Ll128Reduce& job, const Operation& operation) const {
  const std::int64_t step = is_quantized(operation.op) ? unit_of(operation) : pack_of(operation);
  const std::int64_t share = rounded_up(divided_up(operation.count, layout_.ranks), step);
  for (int rank = 0; rank < layout_.ranks; ++rank) {
    job.begins[rank] = std::min(rank * share, operation.count);
    job.counts[rank] = std::min(share, operation.count - job.begins[rank]);
  }
  job.passed_to = operation.kind == OpKind::kReduce ? operation.root : Ll128Reduce::kToAll;
}

// Shares of whole packs, so many that every block has a tile.
void PeerRoute::reduce_two_shot(const Operation& operation, Stream stream) {
  const std::int64_t element = bytes_of(operation, 1), pack = pack_of(operation);
  const int ranks = layout_.ranks;
  const std::int64_t count = operation.count;
  if (count == 0) return;
  TwoShotReduce job;
  job.slots = two_shot_;
  job.input = input_at(operation, 0);
  job.output = operation.output;
  job.count = count;
  job.goes_to = operation.kind == OpKind::kReduce ? operation.root : TwoShotReduce::kAll;
  const std::int64_t wanted = blocks_for(count * element, ranks * kReducedByBlock, layout_.two_shot_blocks);
  job.share =
      std::min(rounded_up(divided_up(count, ranks * wanted), pack), two_shot_.part / element / pack * pack);
  job.stride = job.share;
  job.step = ranks * job.share;
  job.tiles = divided_up(count, job.step);
  job.blocks = static_cast<int>(std::min(wanted, job.tiles));
  job.scaled = operation.op == ReduceOp::kPremulSum;
  job.factor = operation.factor;
  job.poison = poison_of(operation.dtype);
  device_->reduce_two_shot(job, operation.dtype, operation.op, stream);
}

void PeerRoute::move(const Operation& operation, PeerProtocolId protocol, Stream stream) {
  Exchange job{.slots = exchange_};
  const auto poison = poison_of(operation.dtype);
  const int ranks = layout_.ranks;
  if (is_vector_collective(operation.kind)) {
    for (int peer = 0; peer < ranks; ++peer) {
      const auto sent = part_for(operation, rank_, peer), taken = part_from(operation, rank_, peer);
      const std::byte* const from = sent ? input_at(operation, sent->begin) : nullptr;
      std::byte* const to = taken ? output_at(operation, taken->begin) : nullptr;
      if (peer == rank_ && from == to) continue;
      if (sent) add_sent(job, peer, from, bytes_of(operation, sent->count));
      if (taken) add_taken(job, peer, to, bytes_of(operation, taken->count), poison);
    }
  } else {
    std::vector<BlockMessage> blocks;
    add_messages(operation, rank_, ranks, blocks);
    for (const BlockMessage& block : blocks) {
      const auto bytes = static_cast<std::int64_t>(block.bytes);
      if (block.kind == OpKind::kSend) {
        add_sent(job, block.peer, block.data, bytes);
      } else {
        add_taken(job, block.peer, block.data, bytes, poison);
      }
    }
    for (int peer = 0; peer < ranks; ++peer)
      job.in_place[peer] = job.input[peer] == job.output[peer] && job.sent[peer] == job.taken[peer];
    if (job.in_place[rank_]) job.sent[rank_] = job.blocks_sent[rank_] = job.blocks_taken[rank_] = 0;
  }
  if (protocol != PeerProtocolId::kExchange) move_by_ll128(job, protocol, stream);
  run(job, stream);
}

// Moves by LL128 what that is for, and takes it out of the job. Both ranks of a pair know both
// sizes.
void PeerRoute::move_by_ll128(Exchange& job, PeerProtocolId protocol, Stream stream) {
  Ll128Exchange ll128{.slots = ll128_};
  bool any = false;
  const auto take = [&](int peer) {
    const std::int64_t sent = std::exchange(job.sent[peer], 0), taken = std::exchange(job.taken[peer], 0);
    ll128.input[peer] = job.input[peer];
    ll128.output[peer] = job.output[peer];
    ll128.sent[peer] = sent;
    ll128.taken[peer] = taken;
    ll128.poison[peer] = job.poison[peer];
    ll128.blocks[peer] = ll128_blocks_for(std::max(sent, taken), layout_.moving_ll128_blocks);
    job.blocks_sent[peer] = job.blocks_taken[peer] = 0;
  };
  for (int peer = 0; peer < layout_.ranks; ++peer) {
    const std::int64_t most = std::max(job.sent[peer], job.taken[peer]);
    if (peer == rank_ || most == 0) continue;
    if (protocol == PeerProtocolId::kPairs && !layout_.moves_by_ll128(most)) continue;
    take(peer);
    any = true;
  }
  if (!any) return;
  if (job.sent[rank_] > 0) take(rank_);
  ll128.threads =
      layout_.ll128_threads(layout_.ranks * *std::max_element(ll128.blocks, ll128.blocks + layout_.ranks));
  device_->exchange_ll128(ll128, stream);
}

void PeerRoute::run(const Exchange& job, Stream stream) {
  const auto any = [](const int* blocks) {
    return std::any_of(blocks, blocks + BulkSlots::kMostRanks, std::identity());
  };
  if (any(job.blocks_sent) || any(job.blocks_taken)) device_->exchange(job, stream);
}

}  // namespace altorch
