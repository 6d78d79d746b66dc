// SPDX-License-Identifier: BSD-3-Clause
// The interface of everything that follows a group's calls: statistics, recorders, torch's hooks.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/call.h"
#include "base/error.h"

namespace altorch {

struct ObservedCall {
  const Call& call;
  // Of a collective: its number among the group's collectives of its kind, CPU or CUDA. Of a
  // message: that of the last collective before it.
  std::uint64_t sequence;
  std::int64_t bytes;    // of the vector, or of all blocks
  std::uint64_t number;  // among all calls of this process; 0: refused before it had a place
  std::chrono::milliseconds timeout;
  std::int64_t tag = 0;          // of a message; one-sided: which window
  const char* access = nullptr;  // one-sided: what, a literal
  bool on_gpu = false;
};

// Called by the thread that works on the call. It may hold locks of the group, so be quick, throw
// nothing, and do not call the group. A call is issued, then started, then finished or failed. It
// may fail at any time: before it is started, and, when it is refused for its arguments, before it
// is issued.
// Thread rules: any thread, several at once.
class Observer {
 public:
  virtual ~Observer() = default;
  // The call has its place among the group's calls.
  virtual void issued(const ObservedCall&) {}
  // Its first message may be on its way.
  virtual void started(const ObservedCall&) {}
  // Its result is there; of a call on device memory: in order on its stream, and `took` is 0.
  // `transport`, `route`: literals.
  virtual void finished(const ObservedCall&, const char* /*transport*/, std::string_view /*route*/,
                        std::chrono::nanoseconds /*took*/) {}
  // The call comes without its counts, and without bytes.
  virtual void failed(const ObservedCall&, const Error&) {}
};

}  // namespace altorch
