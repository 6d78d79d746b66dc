// SPDX-License-Identifier: BSD-3-Clause
// The first allgather of a new group's ranks. The store may still hold keys of earlier groups with
// the same name and ranks, among them groups that were never completed.
//
// Rank 0 writes a challenge: a random name. The other ranks write their answers under that name.
// Each answer contains a random name that its rank has chosen. Rank 0 collects the answers into one
// table. A rank that does not find its own random name in the table has read the table of an
// earlier group, and reads the challenge again. A rank that answered an old challenge sees the new
// one, and answers again. So no rank needs to know how often a group with this name and these ranks
// was made before. Thread rules: any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/fields.h"
#include "rendezvous/key_value_store.h"

namespace altorch {

// Under this key, behind the prefix, a rank reports that it cannot make its part of the group, and
// why.
inline constexpr const char* kFailedKey = "failed";

struct FirstAllgather {
  std::string prefix;         // for keys of this instance of the group; the same on every rank
  std::vector<Fields> infos;  // by rank
};

// Blocks until all ranks have called it. `key` is made of the group's name and its ranks. `purpose`
// completes the text of an error: "rank 3 has not come <purpose>: ...". Each rank makes a fixed
// number of requests, besides polling. Throws Error(kTimeout) that names the missing ranks, and
// what the store and store.check_peers() throw; a store that is late is asked again until
// `timeout`. If it throws on one rank, it may return on others: then decide_commit(). After a
// failure rank 0 stays up to 2 s longer, so that the others can read the store. One rank alone
// makes no request.
FirstAllgather first_allgather(KeyValueStore& store, const std::string& key, int rank, int size,
                               std::chrono::milliseconds timeout, const std::string& purpose,
                               const Fields& info);

}  // namespace altorch
