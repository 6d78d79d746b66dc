// SPDX-License-Identifier: BSD-3-Clause
// Descriptors that a forked child must not keep. If a child inherited a connection, the peers would
// not notice that the parent has ended. Covers fork(); exec() is the business of SOCK_CLOEXEC.
#pragma once

namespace altorch {

// Closes `descriptor` in every child that is forked from now on, until close_registered(). Thread
// rules: any thread.
void close_on_fork(int descriptor);
// Closes `descriptor` in this process and forgets it; ignores one that is not registered.
void close_registered(int descriptor);

}  // namespace altorch
