// SPDX-License-Identifier: BSD-3-Clause
// The thread (al-recorder) that copies altorch's flight recorder into the one that torch keeps for
// the backend "al".
//
// It looks once a second while calls are made or under way, and sleeps otherwise. Thread rules: any
// thread. In a forked child nothing is copied.
#pragma once

#include "backend/recorder/torch_recorder.h"
#if defined(ALTORCH_RECORDS)

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <unordered_map>

namespace altorch::backend {

class FlightPublisher {
 public:
  // The one of this process, never destroyed; null where torch's recorder is off, or refuses what
  // its variables say (a warning tells so).
  static FlightPublisher* instance();
  // Copies now.
  void publish();
  // Has torch write its file soon, of what is known then, and before the process exits; says which.
  // Does not wait. `rank`: of this process in the job.
  std::string dump(int rank);

 private:
  using Theirs = c10d::FlightRecorder<c10::Event>;
  explicit FlightPublisher(Theirs& theirs);
  void loop();
  // At exit: torch's part may go from now on.
  void stop();
  // True while calls are under way.
  bool copy();

  struct Shown {
    std::size_t id, epoch;  // torch's
    FlightState state;
  };

  Theirs& theirs_;
  FlightRecorder& recorder_;
  const pid_t process_;
  const std::string file_prefix_;
  std::atomic<int> dumps_wanted_{0};
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, Shown> shown_;  // by number
  bool stopped_ = false;
  int dumps_done_ = 0;
};

}  // namespace altorch::backend

#endif
