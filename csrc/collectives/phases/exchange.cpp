// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/phases/exchange.h"

#include <algorithm>
#include <optional>

#include "collectives/phases/segments.h"

namespace altorch {
namespace {

// What all ranks send of a segment is together as long as the wished segment, so that scratch stays
// small; but among many ranks messages must not become too short either, as long as all of them
// together are not much longer.
constexpr std::int64_t kShortest = 16;  // a part of the wished one
constexpr std::int64_t kMost = 4;       // of the wished one, in each of two lanes

std::int64_t segment_for(int size, std::int64_t wish) {
  const std::int64_t peers = size - 1;
  return wish > 0
             ? std::max<std::int64_t>({wish / peers, std::min(wish / kShortest, kMost * wish / peers), 1})
             : 0;
}

struct Combination {
  Slice others, own, result;
};

}  // namespace

void exchange_and_combine(ScheduleBuilder& builder, int rank, int size, const Blocks& blocks, Region region,
                          const Slice& result, std::int64_t segment) {
  if (size == 1) return;
  const Segments segments(blocks.largest(), segment_for(size, segment));
  const Slice own = blocks.block(region, rank);
  Slice arrived[2];
  for (int lane = 0; lane < std::min<std::int64_t>(segments.number(), 2); ++lane) {
    arrived[lane] = builder.scratch((size - 1) * std::min(segments.length(), own.count));
  }
  std::optional<Combination> pending;
  const auto combine_pending = [&] {
    if (pending) builder.combine(pending->others, pending->own, rank, pending->result);
    pending.reset();
  };
  for (std::int64_t k = 0; k < segments.number(); ++k) {
    const auto mine = segments.cut(own, k);
    for (int distance = 1; distance < size; ++distance) {
      const int to = wrap(rank + distance, size), from = wrap(rank - distance, size);
      if (mine) builder.receive(from, part_from(arrived[k % 2], from, rank, mine->count));
      if (const auto theirs = segments.cut(blocks.block(region, to), k)) builder.send(to, *theirs);
    }
    combine_pending();
    builder.end_round();
    if (mine) pending = {part(arrived[k % 2], 0, (size - 1) * mine->count), *mine, *segments.cut(result, k)};
  }
  combine_pending();
  builder.end_round();
}

}  // namespace altorch
