// What the one process of a home that is linked to other homes hears of their ranks, it tells its neighbours, so that they
// know of a death also where the store has died of it. And what its neighbours ask of ranks in other homes, they tell it.
//
// Datagrams to abstract Unix sockets, which end with their processes. Only those of the members count. Thread rules: one
// thread, the monitor's.
#pragma once

#include <vector>

#include "observe/late_question.h"
#include "observe/liveness.h"

namespace altorch {

class HomeNews {
 public:
  // Hears from now on, where there are other homes; nothing where it cannot.
  explicit HomeNews(const LivenessSettings& settings);
  ~HomeNews();
  HomeNews(const HomeNews&) = delete;

  int socket() const { return socket_; }  // for poll(); -1: none
  // Of a death, to all neighbours.
  void tell(int rank) noexcept;
  // A question, to one neighbour.
  void pass_on(const LateQuestion& question, int neighbour) noexcept;
  struct News {
    std::vector<int> deaths;
    std::vector<LateQuestion> questions;
  };
  News hear() noexcept;

 private:
  void send_to(int neighbour, const void* words, std::size_t bytes) noexcept;

  const LivenessSettings& settings_;
  std::vector<int> neighbours_;
  int socket_ = -1;
};

}  // namespace altorch
