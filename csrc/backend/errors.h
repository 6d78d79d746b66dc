// The one place where the engine's errors become torch's.
#pragma once

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "common/error.h"

namespace altorch::backend {

// kInvalidArgument becomes ValueError, kInvalidType TypeError, kUnsupported NotImplementedError, everything
// else DistBackendError.
[[noreturn]] void throw_as_torch(const Error& error);
std::exception_ptr as_torch(const Error& error);

// What torch is told about a group that failed so. A refused call is none of its errors, nor is a group that
// was closed at the caller's wish.
c10d::ErrorType error_type(ErrorKind kind);

// Runs `body`, mapping what it throws.
template <typename Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Error& error) {
    throw_as_torch(error);
  }
}

}  // namespace altorch::backend
