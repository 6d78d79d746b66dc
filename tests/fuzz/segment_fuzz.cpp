// SPDX-License-Identifier: BSD-3-Clause
// Collectives through shared memory, with a peer that publishes the right steps with anything in
// them.
#include <vector>

#include "fuzz/memory.h"
#include "fuzz/target.h"
#include "reduction/reduce.h"
#include "transports/shm/collectives.h"
#include "transports/shm/segment.h"

namespace altorch {
namespace {

constexpr int kSegmentRanks = 2;
constexpr std::uint64_t kCall = 7;
constexpr std::int64_t kMostBytes = 96 << 10;  // past where blocks are read in place

struct Buffers {
  Call call;
  std::vector<std::int64_t> input_counts, output_counts;
  std::vector<std::byte> input, output;
};

// A right call of this rank.
void fill(Buffers& made, fuzz::Input& input) {
  Call& call = made.call;
  call.kind = static_cast<OpKind>(input.up_to(static_cast<int>(OpKind::kBarrier)));
  call.dtype = static_cast<DType>(input.up_to(kDTypeCount - 1));
  if (call.reduces() && !can_reduce(call.dtype, call.op)) call.dtype = DType::kFloat32;
  call.root = input.up_to(kSegmentRanks - 1);
  const auto element = static_cast<std::int64_t>(size_of(call.dtype));
  const auto count = [&] { return input.number<std::uint32_t>() % kMostBytes / element; };
  call.count = count();
  const bool uneven = has_blocks(call.kind) && input.up_to(1) == 1;
  if (uneven) {
    made.input_counts = {count(), count()}, made.output_counts = {count(), count()};
    if (call.kind == OpKind::kAllToAll || call.kind == OpKind::kScatter ||
        call.kind == OpKind::kReduceScatter)
      call.input_counts = made.input_counts;
    if (call.kind == OpKind::kAllToAll || call.kind == OpKind::kGather || call.kind == OpKind::kAllGather)
      call.output_counts = made.output_counts;
  }
  made.input.resize(static_cast<std::size_t>(2 * kMostBytes));
  made.output.resize(static_cast<std::size_t>(2 * kMostBytes));
  call.input = made.input.data(), call.output = made.output.data();
}

void publish(shm::Segment& peer, std::uint64_t step, std::size_t area, fuzz::Input& input) {
  input.take(peer.inlined(1, step), shm::Segment::kInlineBytes);
  for (int rank = 0; rank < kSegmentRanks; ++rank) peer.counts(1, step)[rank] = input.number<std::int64_t>();
  std::memset(peer.area(1, step), input.up_to(255), area);
  peer.publish(step, kCall, input.number<std::uint64_t>());
}

}  // namespace

FUZZ_TARGET(segment, 500) {
  const std::size_t area = shm::Segment::area_bytes(kSegmentRanks, 64 << 10),
                    bytes = shm::Segment::bytes(kSegmentRanks, area);
  const auto memory = fuzz::hostile_memory(bytes, 0);
  std::vector<shm::Process> processes(input.up_to(1) == 1 ? kSegmentRanks : 0, shm::Process::own());
  shm::Segment peer(memory, 1, kSegmentRanks, area);
  ShmCollectives own(shm::Segment(memory, 0, kSegmentRanks, area), processes);
  Buffers buffers;
  fill(buffers, input);
  Request request;
  own.start(buffers.call, kCall, {}, request);
  std::optional<Error> error;
  for (std::uint64_t step = 1; step <= 32 && !input.empty(); ++step) {
    publish(peer, step, area, input);
    for (int pokes = input.up_to(7); pokes > 4; --pokes) fuzz::poke(memory.get(), bytes, input);
    if (own.test(request, error) != State::kPending) break;
  }
  own.cancel(request);
}

}  // namespace altorch
