// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/signals.h"

namespace altorch {

SignalKeeper::SignalKeeper() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    // Fails for the two signals that the C library keeps for its threads.
    if (sigaction(signal, nullptr, &action) == 0) saved_.push_back({signal, action});
  }
}

SignalKeeper::~SignalKeeper() {
  for (const Saved& saved : saved_) {
    struct sigaction now = {};
    if (sigaction(saved.signal, nullptr, &now) != 0) continue;
    // sa_handler and sa_sigaction share their storage.
    if (now.sa_handler != saved.action.sa_handler || now.sa_flags != saved.action.sa_flags) {
      sigaction(saved.signal, &saved.action, nullptr);
    }
  }
}

}  // namespace altorch
