// SPDX-License-Identifier: BSD-3-Clause
// When the tensors of an asynchronous call on a GPU may be let go of.
//
// torch's allocator gives memory back to the stream that it was allocated on, and hands it out
// there at once. That is right where this stream comes behind the call, and wrong where only
// another one has waited: the new owner would share it with the call.
#pragma once

namespace altorch {

// A stream has just waited for the call. `is_calls_stream`: it is the stream that was current at
// the call. `is_captured`: a graph has the call, and will do it again. `is_over`: the device has
// come to the call's end.
constexpr bool releases_tensors(bool is_calls_stream, bool is_captured, bool is_over) {
  return is_calls_stream || (!is_captured && is_over);
}

}  // namespace altorch
