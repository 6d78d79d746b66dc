// SPDX-License-Identifier: BSD-3-Clause
// The notes that stalled ranks leave in the store, and the list of deaths.
#include "fuzz/hostile_store.h"
#include "health/death_list.h"
#include "health/desync_board.h"
#include "health/desync_queries.h"
#include "runtime/fingerprint.h"

namespace altorch {
namespace {

void describe(const DesyncBoard::Finding& finding) {
  if (finding.aborted) {
    name_of(finding.aborted->kind());
    fuzz::require(finding.aborted->kind() <= ErrorKind::kInternal, "an error is of some kind");
  }
  describe_fingerprint(finding.called.fingerprint);
  if (finding.first_difference_theirs) describe_fingerprint(finding.first_difference_theirs->fingerprint);
}

}  // namespace

FUZZ_TARGET(desync_board, 2000) {
  const int kind = input.up_to(3);
  const auto store = std::make_shared<fuzz::HostileStore>(input);
  const auto board = std::make_shared<DesyncBoard>(store, "group", 0, 3);
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) board->record({sequence, 1, 1});
  if (kind == 0) {
    if (const auto finding = board->compare({4, 1, 1})) describe(*finding);
  } else if (kind == 1) {
    DesyncQueries queries(store);
    queries.join(board);
    queries.answer();
  } else if (kind == 2) {
    DeathList deaths(store);
    deaths.take_new();
    deaths.take_new();
  } else {
    if (const auto finding = board->closed()) describe(*finding);
    board->waiting({4});
    board->compare_message(1, true, 0, false);
  }
}

}  // namespace altorch
