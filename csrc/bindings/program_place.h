// SPDX-License-Identifier: BSD-3-Clause
// Tells where the program's main thread is in Python, for `altorch trace`, and for the timeout
// errors of ranks that wait for this one.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace altorch {

// `find()` returns the place as a text. It is called on the callback thread, with Python's lock. It
// may not return within 0.2 s, because the lock is held or the interpreter ends. Then the place is
// empty, and stays so until it has returned.
void set_place_finder(const pybind11::function& find);

}  // namespace altorch
