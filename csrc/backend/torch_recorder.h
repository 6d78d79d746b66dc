// Which flight recorder a group has: altorch's own, which torch's tools are shown (flight_publisher.h), or torch's hook.
#pragma once

#include <torch/version.h>

#include <memory>
#include <string>
#include <vector>

#include "observe/flight_recorder.h"

// From here on torch keeps a recorder for each backend, and leaves alone one that records for itself.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define ALTORCH_RECORDS
#endif

namespace altorch::backend {

// What altorch records of a group that torch knows under `name`. When a call fails under way, torch's file of it is
// written (TORCH_FR_DUMP_TEMP_FILE, TORCH_FR_DUMP_ON_TIMEOUT), once for a group.
class TorchFlightLog : public FlightLog {
 public:
  // Null where torch's recorder is off (TORCH_FR_BUFFER_SIZE=0), was preferred (ALTORCH_FLIGHT_RECORDER), or is too old to
  // be shown anything.
  static std::shared_ptr<TorchFlightLog> make(const std::string& name, int rank,
                                              const std::vector<int>& global_ranks);

  TorchFlightLog(FlightRecorder& recorder, const FlightGroup& group);
  void issued(const ObservedCall& call) override;
  void failed(const ObservedCall& call, const Error& error) override;
  // Whether torch's hook records the group in spite of all: one that another backend serves on another device, or that
  // somebody has attached it to before its first call. What is attached later records on top.
  bool hooked() const { return hooked_.load(std::memory_order_relaxed); }

 private:
  void look();

  const std::string name_;
  const int rank_in_job_;
  std::atomic<bool> looked_{false}, hooked_{false}, dumped_{false};
};

// Whether torch's hook is to leave altorch's groups alone.
bool records_for_itself();
// Whether torch's hook, which takes a call that gave no Work for one that hangs, records a group without a log.
bool torch_records();

// Shows torch what was recorded until now; it sees the rest within a second. For whoever asks torch at once.
void publish_flight_record();

}  // namespace altorch::backend
