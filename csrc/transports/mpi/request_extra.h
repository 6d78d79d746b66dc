// SPDX-License-Identifier: BSD-3-Clause
// What a Request of the MPI transport carries in `extra` when an MPI handle is not enough. Owned by
// the request; freed when it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"

namespace altorch {

// What comes first of a long message. The magic number tells it from a message of the same length.
// Its pieces have `pieces_tag`.
struct LongHeader {
  static constexpr std::uint64_t kMagic[2] = {0x616C746F7263686Cull, 0x9E3779B97F4A7C15ull};
  std::uint64_t magic[2] = {kMagic[0], kMagic[1]};
  std::uint64_t total = 0;
  std::int64_t pieces_tag = 0;
  bool is_one() const { return magic[0] == kMagic[0] && magic[1] == kMagic[1]; }
};

struct RequestExtra {
  // Posting failed: what test() reports.
  std::optional<Error> failure;

  // A receive that is not posted yet, or a long message, of which the header comes first, in
  // Request::handle.
  bool is_probing = false;
  bool is_long = false;
  LongHeader header;
  char* data = nullptr;
  int tag = 0;  // of a receive that is not posted yet
  bool pieces_posted = false;
  std::vector<std::intptr_t> pieces;  // 0 once done

  // A collective: integer counts and offsets that MPI reads until it is done, and a result to copy
  // afterwards.
  std::vector<int> counts, offsets, more_counts, more_offsets;
  std::unique_ptr<std::byte[]> bounce;
  void* copy_to = nullptr;
  std::size_t copy_bytes = 0;
};

}  // namespace altorch
