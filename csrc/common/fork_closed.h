// Descriptors that a forked child must not keep: a connection that a child holds open outlives its process,
// whose end nobody would see.
#pragma once

namespace altorch {

// Closes `descriptor` in every child that is forked from now on, until close_unforked(). Thread rules: any.
void close_in_forks(int descriptor);
// Closes it here.
void close_unforked(int descriptor);

}  // namespace altorch
