// What the one process of a home that is linked to other homes hears of their ranks, it tells its neighbours, so that they
// know of a death also where the store has died of it.
//
// Datagrams to abstract Unix sockets, which end with their processes. Only those of the members count. Thread rules: one
// thread, the monitor's.
#pragma once

#include <vector>

#include "observe/liveness.h"

namespace altorch {

class HomeNews {
 public:
  // Hears from now on, where there are other homes; nothing where it cannot.
  explicit HomeNews(const LivenessSettings& settings);
  ~HomeNews();
  HomeNews(const HomeNews&) = delete;

  int socket() const { return socket_; }  // for poll(); -1: none
  void tell(int rank) noexcept;
  std::vector<int> hear() noexcept;

 private:
  const LivenessSettings& settings_;
  std::vector<int> neighbours_;
  int socket_ = -1;
};

}  // namespace altorch
