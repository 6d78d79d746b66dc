// SPDX-License-Identifier: BSD-3-Clause
// A Channel moves tagged messages between the ranks of one group. It is the point-to-point half of
// a transport.
//
// Matching: a receive takes the oldest message with its peer and tag; messages between one pair of
// ranks with one tag arrive in the order they were sent. Messages may be larger than 2 GiB. Buffers
// stay untouched by the caller until the request is done. Thread rules: any thread may call, for
// one request one thread at a time; an implementation that needs it locks inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/error.h"
#include "base/wait_target.h"

namespace altorch {

inline constexpr int kAnySource = -1;

// The element type of a message. If both ends name a type, the two must be equal. A channel that
// transmits the type reports a mismatch; MPI's channel does not transmit it.
using ElementType = std::uint8_t;  // 1 + DType; 0: not named
constexpr ElementType element_type(DType dtype) {
  return static_cast<ElementType>(1 + static_cast<int>(dtype));
}

// An operation in flight. The caller sets `exact` and `type` before it posts the message, and may
// read `bytes` and `peer`. What `handle` and `extra` hold is up to the channel; only test() and
// cancel() say that a request is done. One that was never posted has a `handle` of 0.
struct Request {
  std::uintptr_t handle = 0;
  void* extra = nullptr;  // e.g. the tail of a message that was cut into pieces
  std::size_t bytes = 0;  // asked for
  int peer = 0;           // rank in the group
  bool is_receive = false;
  bool exact = true;     // a receive that gets fewer bytes than asked is a mismatch
  ElementType type = 0;  // set it before the message is posted
};

enum class State : std::uint8_t { kPending, kDone, kFailed };

class Channel {
 public:
  virtual ~Channel() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Largest tag that may be used; tags start at 0.
  virtual std::int64_t max_tag() const = 0;

  // Post without blocking. Failures surface in test().
  virtual void send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) = 0;
  // peer may be kAnySource; then request.peer is the sender once it is done.
  virtual void receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) = 0;

  // Tests all requests and drives progress. kDone: all are complete, their handles are 0. kFailed:
  // `error` is set (wrong size or type: ErrorKind::kMismatch, naming the peer and both of them);
  // the rest may still be in flight. Requests that are complete may be tested again. Throws Error
  // if what a peer left in shared memory makes no sense; the caller then cancels, as after kFailed.
  // Does not wait for a peer, but may sleep for 200 us.
  virtual State test(std::span<Request> requests, std::optional<Error>& error) = 0;

  // Call it before test(). If test() then returns kPending, the caller may sleep on the returned
  // value until something happens to a message of this rank. The sleep ends at once if test() left
  // work to do, or changed requests that it was not passed. An empty value: the channel cannot end
  // a sleep, so the caller must poll.
  virtual WaitTarget wait_target() const { return {}; }

  // Withdraws what can be withdrawn. True when nothing remains in flight, so that the buffers are
  // free again; false when some request still owns its buffer, which must then be kept until the
  // process ends. May take seconds. Every request must end by test() or by this: it may own memory.
  virtual bool cancel(std::span<Request> requests) = 0;
};

// The mismatch error of a receive for `expected` bytes that gets `bytes` bytes from `sender`, a
// text such as "rank 3". Nothing if the sizes fit.
inline std::optional<Error> wrong_size(std::size_t bytes, std::size_t expected, bool exact,
                                       const std::string& sender) {
  if (bytes == expected || (bytes < expected && !exact)) return std::nullopt;
  return Error(ErrorKind::kMismatch, "A message from " + sender + " has " + std::to_string(bytes) +
                                         " bytes where this rank expects " + std::to_string(expected) +
                                         ": the ranks disagree about the size or type of a tensor.");
}

// As wrong_size(), and also compares the element types if both ends name one. `type` comes from the
// sender, so it may be any number.
inline std::optional<Error> unfit(std::size_t bytes, std::uint64_t type, std::size_t expected,
                                  ElementType expected_type, bool exact, const std::string& sender) {
  if (auto wrong = wrong_size(bytes, expected, exact, sender)) return wrong;
  if (type == 0 || expected_type == 0 || type == expected_type || bytes == 0) return std::nullopt;
  const std::string sent =
      type <= kDTypeCount ? name_of(static_cast<DType>(type - 1)) : "no type that there is";
  return Error(ErrorKind::kMismatch, "A message from " + sender + " is of " + sent +
                                         " where this rank expects " +
                                         name_of(static_cast<DType>(expected_type - 1)) +
                                         "; send and receive tensors of one type (or view() both as one).");
}

}  // namespace altorch
