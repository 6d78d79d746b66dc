// SPDX-License-Identifier: BSD-3-Clause
// Two-phase commit through the store: either all ranks use what they have made together, or none
// does.
//
// The lowest rank decides to commit when all ranks have reported success. A rank that failed, that
// sees a peer die, or whose timeout passes decides to abort. The first decision that is written
// holds for all ranks. Thread rules: any thread.
#pragma once

#include <chrono>
#include <string>

#include "rendezvous/key_value_store.h"

namespace altorch {

// Blocks until a decision is in the store. Returns an empty string if all ranks commit, else the
// reason of the abort; all ranks on which it returns get the same. `key`: a new one for each
// commit, the same on all ranks. `abort_reason`: why this rank failed; empty if it succeeded.
// store.check_peers() must tell of deaths: one aborts, and is the reason then.
// Throws Error(kTimeout) if no decision can be read 5 s after the timeout, and what the store
// throws. Then the caller does not know the decision, and must not use what it has made.
std::string decide_commit(KeyValueStore& store, const std::string& key, int rank, int size,
                          std::chrono::milliseconds timeout, const std::string& abort_reason);

}  // namespace altorch
