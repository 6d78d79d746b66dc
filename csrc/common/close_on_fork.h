// Descriptors that a forked child must not keep. A connection that a child holds open outlives its process, and the peers
// would not notice that the process ended.
#pragma once

namespace altorch {

// Closes `descriptor` in every child that is forked from now on, until close_registered(). Thread rules: any thread.
void close_on_fork(int descriptor);
// Closes `descriptor` in this process and forgets it.
void close_registered(int descriptor);

}  // namespace altorch
