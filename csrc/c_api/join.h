// SPDX-License-Identifier: BSD-3-Clause
// Makes a group through a CallbackStore: its ranks meet, compare their settings, watch each other and share memory.
#pragma once

#include <memory>

#include "c_api/c_api.h"
#include "runtime/communicator.h"

namespace altorch {

// Collective. `key`: of the group's name and its ranks. `membership`: name, ranks, timeout; the rest is filled in here. Throws Error, on all ranks alike where they differ
// or are on several nodes.
std::shared_ptr<Communicator> join_group(const altorch_store& store, const std::string& key,
                                         Membership membership);

}  // namespace altorch
