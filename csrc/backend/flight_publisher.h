// The thread (al-recorder) that copies altorch's flight recorder into the one that torch keeps for the backend "al".
//
// It looks once a second while calls are made or under way, and sleeps otherwise. Thread rules: any thread. In a forked
// child nothing is copied.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <unordered_map>

#include "observe/flight_recorder.h"

namespace altorch::backend {

class FlightPublisher {
 public:
  // Of a ring of `entries` calls: the first one's counts. Never destroyed.
  static FlightPublisher& instance(std::size_t entries = 0);
  FlightRecorder& recorder() { return recorder_; }
  // Copies now.
  void publish();
  // Copies and has torch write its file, unless TORCH_FR_DUMP_ON_TIMEOUT=0. `rank`: of this process in the job. Waits for it
  // for 2 s at most: the disk may be slow.
  void dump(int rank);

 private:
  explicit FlightPublisher(std::size_t entries);
  void loop();
  // At exit: torch's part may go from now on.
  void stop();
  // True while calls are under way.
  bool copy();

  struct Shown {
    std::size_t id, epoch;  // torch's
    FlightState state;
  };

  FlightRecorder recorder_;
  const pid_t process_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::unordered_map<std::uint64_t, Shown> shown_;  // by number
  bool stopped_ = false;
  int dumps_wanted_ = 0, dumps_done_ = 0;
};

}  // namespace altorch::backend
