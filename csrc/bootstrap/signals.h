// SPDX-License-Identifier: BSD-3-Clause
// MPI takes signals for itself: MPICH SIGUSR1 in MPI_Init, UCX SIGHUP and the fatal ones, which its
// constructors do when libmpi is loaded. This gives them back.
#pragma once

#include <csignal>
#include <vector>

namespace altorch {

// Remembers every signal's disposition, and on destruction restores those that have changed.
class SignalKeeper {
 public:
  SignalKeeper();
  ~SignalKeeper();
  SignalKeeper(const SignalKeeper&) = delete;
  SignalKeeper& operator=(const SignalKeeper&) = delete;

 private:
  struct Saved {
    int signal;
    struct sigaction action;
  };
  std::vector<Saved> saved_;
};

}  // namespace altorch
