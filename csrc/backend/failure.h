// What torch is told when it asks a group whether something went wrong.
#pragma once

#include <atomic>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "common/error.h"

namespace altorch::backend {

constexpr c10d::ErrorType error_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kTimeout:
      return c10d::ErrorType::TIMEOUT;
    case ErrorKind::kPeerLost:
      return c10d::ErrorType::REMOTE_ERROR;
    case ErrorKind::kMismatch:
    case ErrorKind::kTransport:
    case ErrorKind::kInternal:
      return c10d::ErrorType::COMM_ERROR;
    case ErrorKind::kInvalidArgument:
    case ErrorKind::kInvalidType:
    case ErrorKind::kUnsupported:
    case ErrorKind::kClosed:  // which follows from another one, or is the caller's wish
      break;
  }
  return c10d::ErrorType::SUCCESS;
}

// The first failure of a group that is more than a refused call. Thread rules: any thread.
class FailureRecord {
 public:
  void note(const Error& error) {
    auto none = c10d::ErrorType::SUCCESS;
    first_.compare_exchange_strong(none, error_type(error.kind()));
  }
  c10d::ErrorType first() const { return first_.load(); }

 private:
  std::atomic<c10d::ErrorType> first_{c10d::ErrorType::SUCCESS};
};

}  // namespace altorch::backend
