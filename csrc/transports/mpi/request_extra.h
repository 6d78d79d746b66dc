// What a Request of the MPI transport carries in `extra` when an MPI handle is not enough. Owned by the
// request; freed when it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/error.h"

namespace altorch {

struct RequestExtra {
  // Posting failed: what test() reports.
  std::optional<Error> failure;

  // A receive that is not posted yet, or a long message, of which the header comes first, in Request::handle.
  bool is_probing = false;
  bool is_long = false;
  std::uint64_t total = 0;  // the header itself
  char* data = nullptr;
  int tag = 0;
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
