// SPDX-License-Identifier: BSD-3-Clause
// One error type for the whole engine.
//
// Inside, an Error is a value: state machines store it and hand it on. It is thrown only by set-up
// code and by checks that run on the caller's thread, and it is caught once, in backend/, where its
// kind is mapped to torch's DistBackendError family.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace altorch {

enum class ErrorKind {
  kInvalidArgument,  // the caller passed something the operation cannot take
  kInvalidType,      // the same, and it is the element type that it cannot take
  kMismatch,         // ranks disagree about the operation, its type, size or root
  kTimeout,          // a deadline passed
  kPeerLost,         // another process died or left
  kClosed,           // the group was destroyed, aborted, or broken by an earlier error
  kTransport,        // MPI, Gloo or the system reported a failure
  kUnsupported,      // no route can carry this operation here
  kInterrupted,      // a signal handler of the program raised while the call waited
  kInternal,         // a defect of altorch
};

// Whether a wait for other ranks has ended so. Such an error is no reason to go another way.
constexpr bool ends_a_wait(ErrorKind kind) {
  return kind == ErrorKind::kTimeout || kind == ErrorKind::kPeerLost || kind == ErrorKind::kInterrupted;
}

inline constexpr int kErrorKindCount = static_cast<int>(ErrorKind::kInternal) + 1;

constexpr const char* name_of(ErrorKind kind) {
  constexpr const char* names[] = {"invalid argument",  "invalid type", "mismatch between ranks",
                                   "timeout",           "peer lost",    "group closed",
                                   "transport failure", "unsupported",  "interrupted by a signal",
                                   "internal error"};
  return names[static_cast<int>(kind)];
}

// `what()` is a full sentence for a user: it names what happened and, where one exists, the next
// thing to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message) : std::runtime_error(std::move(message)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }
  // The same error with text put before its message.
  Error with_prefix(const std::string& prefix) const { return Error(kind_, prefix + what()); }
  // The same, with what can be told apart from the cause: group, operation, sequence number and
  // rank.
  Error with_label(const std::string& label) const {
    Error labelled = with_prefix(label);
    labelled.label_ = label.size() + label_;
    return labelled;
  }
  bool has_label() const { return label_ > 0; }
  Error without_label() const { return Error(kind_, what() + label_); }

 private:
  ErrorKind kind_;
  std::size_t label_ = 0;  // of the message, in bytes
};

}  // namespace altorch
