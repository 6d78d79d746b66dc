// SPDX-License-Identifier: BSD-3-Clause
// A store with liveness checks. A wait for a key ends with an error if a rank has died, if another
// thread interrupts it (base/interrupt.h), or if a signal arrives.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "health/liveness.h"
#include "platform/signal_check.h"
#include "rendezvous/store_view.h"

namespace altorch {

// Thread rules: one thread waits at a time.
class LivenessStore : public StoreView {
 public:
  // `ranks`: global ranks, as `liveness` knows them. Without `liveness` no rank is checked.
  LivenessStore(KeyValueStore& store, std::shared_ptr<Liveness> liveness, std::vector<int> ranks)
      : StoreView(store), liveness_(std::move(liveness)), ranks_(std::move(ranks)) {}

  // Looks once whether a rank has died, at most every 100 ms; never waits for a peer. By the thread
  // that waits. Throws Error: kPeerLost; kClosed if another thread interrupts the wait;
  // kInterrupted if a signal does.
  void check_peers() override;
  // Waits for the key. Throws as check_peers(), and kTimeout.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  const std::shared_ptr<Liveness> liveness_;
  const std::vector<int> ranks_;
  std::chrono::steady_clock::time_point next_look_{};
  int looks_ = 0;
  bool suspicion_ = false;
  SignalCheck signals_;
};

}  // namespace altorch
