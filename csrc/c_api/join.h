// SPDX-License-Identifier: BSD-3-Clause
// Makes a group through a CallbackStore: its ranks meet, compare their settings, watch each other
// and share memory.
#pragma once

#include <memory>

#include "c_api/c_api.h"
#include "runtime/communicator.h"

namespace altorch {

// Collective: all ranks of the group call it. `key` identifies the group's name and ranks in the
// store. The caller fills in name, ranks and timeout of `membership`. Throws Error on all ranks if
// their settings differ or they are on several nodes.
std::shared_ptr<Communicator> join_group(const altorch_store& store, const std::string& key,
                                         Membership membership);

}  // namespace altorch
