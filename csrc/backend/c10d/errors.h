// SPDX-License-Identifier: BSD-3-Clause
// The one place where the engine's errors become torch's.
#pragma once

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <type_traits>

#include "base/error.h"

namespace altorch::backend {

// kInvalidArgument becomes ValueError, kInvalidType TypeError, kUnsupported NotImplementedError,
// everything else DistBackendError.
[[noreturn]] void throw_as_torch(const Error& error);
std::exception_ptr as_torch(const Error& error);

// What torch is told about a group that failed with this kind of error. A refused call is no error
// of the group, nor is its closing at the caller's wish.
c10d::ErrorType error_type(ErrorKind kind);

// Keeps an exception for the calling thread: a signal handler of the program raised it while a call
// waited (platform/signal_check.h). When the call ends, guarded() throws it in place of the Error.
void keep_for_caller(std::exception_ptr raised);
// Throws the exception that is kept for the calling thread, if there is one.
void rethrow_kept();

// Runs `body`, mapping what it throws.
template <typename Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      rethrow_kept();  // the call may have ended without an Error
    } else {
      auto result = body();
      rethrow_kept();
      return result;
    }
  } catch (const Error& error) {
    rethrow_kept();
    throw_as_torch(error);
  }
}

}  // namespace altorch::backend
