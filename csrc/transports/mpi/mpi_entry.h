// SPDX-License-Identifier: BSD-3-Clause
// The right to call MPI, for as long as it lives: the lock, and MPI usable under it.
#pragma once

#include <optional>

#include "transports/mpi/mpi.h"

namespace altorch {

// A request that does not complete is worth this many polls per test: each one makes MPI look at
// the network again.
inline constexpr int kPollsPerTest = 8;

// Thread rules: one thread; short-lived.
class MpiEntry {
 public:
  explicit MpiEntry(Mpi& mpi) : mpi_(mpi), locked_(mpi.lock().lock()), granted_(locked_ && mpi.usable()) {}
  ~MpiEntry() {
    if (locked_) mpi_.lock().unlock();
  }
  MpiEntry(const MpiEntry&) = delete;
  MpiEntry& operator=(const MpiEntry&) = delete;

  // False: MPI must not be called (it is finalised, held up, or this is a forked child); refusal()
  // says why.
  explicit operator bool() const { return granted_; }
  Error refusal() const { return mpi_.not_usable(); }
  // For callers that may throw.
  const MpiEntry& or_throw() const {
    if (!granted_) throw refusal();
    return *this;
  }

 private:
  Mpi& mpi_;
  const bool locked_, granted_;
};

}  // namespace altorch
