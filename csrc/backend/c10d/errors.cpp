// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/errors.h"

#include <atomic>
#include <utility>

namespace altorch::backend {

void throw_as_torch(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::kInvalidArgument:
      C10_THROW_ERROR(ValueError, error.what());
    case ErrorKind::kInvalidType:
      C10_THROW_ERROR(TypeError, error.what());
    case ErrorKind::kUnsupported:
      C10_THROW_ERROR(NotImplementedError, error.what());
    default:
      C10_THROW_ERROR(DistBackendError, error.what());
  }
}

namespace {

// How many threads keep an exception. While none does, rethrow_kept() reads no thread-local
// variable.
std::atomic<int> threads_that_keep{0};

// Thrown to the caller in place of the Error that it ended a call with.
std::exception_ptr& kept_for_caller() {
  static thread_local auto* kept = new std::exception_ptr();  // never freed: it may belong to Python
  return *kept;
}

}  // namespace

void keep_for_caller(std::exception_ptr raised) {
  if (!kept_for_caller()) threads_that_keep.fetch_add(1);
  kept_for_caller() = std::move(raised);
}

void rethrow_kept() {
  if (threads_that_keep.load(std::memory_order_relaxed) == 0 || !kept_for_caller()) return;
  threads_that_keep.fetch_sub(1);
  std::rethrow_exception(std::exchange(kept_for_caller(), nullptr));
}

std::exception_ptr as_torch(const Error& error) {
  try {
    throw_as_torch(error);
  } catch (...) {
    return std::current_exception();
  }
}

c10d::ErrorType error_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kTimeout:
      return c10d::ErrorType::TIMEOUT;
    case ErrorKind::kPeerLost:
      return c10d::ErrorType::REMOTE_ERROR;
    case ErrorKind::kMismatch:
    case ErrorKind::kTransport:
    case ErrorKind::kInterrupted:
    case ErrorKind::kInternal:
      return c10d::ErrorType::COMM_ERROR;
    case ErrorKind::kInvalidArgument:
    case ErrorKind::kInvalidType:
    case ErrorKind::kUnsupported:
    case ErrorKind::kClosed:
      break;
  }
  return c10d::ErrorType::SUCCESS;
}

}  // namespace altorch::backend
