// SPDX-License-Identifier: BSD-3-Clause
// Where the program's main thread is in Python, for those whom it keeps waiting: `altorch trace`, and errors of other ranks.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace altorch {

// `find()` says so as a text; it is called on the callback thread, with Python's lock. Where it does not answer within 0.2 s,
// since Python's lock is held or the interpreter ends, nothing is said, nor until it has.
void set_place_finder(const pybind11::function& find);

}  // namespace altorch
