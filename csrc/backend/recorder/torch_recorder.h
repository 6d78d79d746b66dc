// SPDX-License-Identifier: BSD-3-Clause
// Records a group's calls. altorch's own flight recorder serves `altorch trace`, and torch's tools
// if torch can take its records (flight_publisher.h). Otherwise torch's hook records for torch's
// tools.
#pragma once

#include <torch/version.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "trace/flight_recorder.h"

// From this version on torch keeps a recorder for each backend, and leaves out a backend that
// records for itself.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define ALTORCH_RECORDS
#endif

namespace altorch::backend {

// The recorder of this process; never destroyed.
FlightRecorder& process_recorder();

// What altorch records of a group that torch knows under `name`. When a call fails in flight,
// torch's dump file is written (TORCH_FR_DUMP_TEMP_FILE, TORCH_FR_DUMP_ON_TIMEOUT), once for a
// group.
class TorchFlightLog : public FlightLog {
 public:
  // `description` returns torch's description of the group. It is called in the group's first call,
  // by the thread that makes that call. Returns null if neither `altorch trace` (ALTORCH_TRACE) nor
  // torch wants records.
  using Description = std::function<std::string()>;
  static std::shared_ptr<TorchFlightLog> make(const std::string& name, int rank,
                                              const std::vector<int>& global_ranks, Description description);

  // `for_torch`: whether torch's recorder gets the calls. Not if that is off
  // (TORCH_FR_BUFFER_SIZE=0), if its hook is preferred (ALTORCH_FLIGHT_RECORDER), or if torch is
  // too old for it.
  TorchFlightLog(const FlightGroup& group, Description description, bool for_torch);
  void issued(const ObservedCall& call) override;
  void failed(const ObservedCall& call, const Error& error) override;
  // Whether torch's hook records the group. The hook takes a call that gave no Work for one that
  // hangs. It records if it is preferred. It also does if another backend serves the group on
  // another device, or if the program has attached it to the group before the first call. If it is
  // attached later, both record.
  bool hooked() const { return hooked_.load(std::memory_order_relaxed); }

 private:
  void look();

  const std::string name_;
  const int rank_in_job_;
  const bool for_torch_;
  const Description description_;
  std::atomic<bool> looked_{false}, hooked_{false}, dumped_{false};
};

// The error in the variables that tell torch and altorch how many calls to record, if there is one.
std::optional<Error> wrong_recorder_size();
// Whether altorch records for torch's tools itself, so that torch's hook leaves its groups out.
bool records_for_itself();
// Whether torch's hook records a group that altorch does not.
bool torch_records();

// Copies to torch's recorder what was recorded until now; later calls follow within a second. For a
// caller that reads torch's recorder at once.
void publish_flight_record();
// Has torch write its dump file soon. Returns the file's name, or why there is none. Does not wait.
// `rank`: of this process in the job. `missed`: a call has missed its deadline, and the user has
// not asked for the file.
std::string dump_flight_record(int rank, bool missed);

}  // namespace altorch::backend
