// SPDX-License-Identifier: BSD-3-Clause
// What records a group's calls: altorch's own flight recorder, for `altorch trace` and, where it can be shown anything
// (flight_publisher.h), for torch's tools; or for these torch's hook.
#pragma once

#include <torch/version.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "observe/flight_recorder.h"

// From here on torch keeps a recorder for each backend, and leaves alone one that records for itself.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define ALTORCH_RECORDS
#endif

namespace altorch::backend {

// The recorder of this process; never destroyed.
FlightRecorder& process_recorder();

// What altorch records of a group that torch knows under `name`. When a call fails under way, torch's file of it is
// written (TORCH_FR_DUMP_TEMP_FILE, TORCH_FR_DUMP_ON_TIMEOUT), once for a group.
class TorchFlightLog : public FlightLog {
 public:
  // `description`: what torch says of the group; asked in its first call, by whoever makes it. Null where nobody wants to
  // know: neither `altorch trace` (ALTORCH_TRACE) nor torch.
  using Description = std::function<std::string()>;
  static std::shared_ptr<TorchFlightLog> make(const std::string& name, int rank,
                                              const std::vector<int>& global_ranks, Description description);

  // `for_torch`: not where its recorder is off (TORCH_FR_BUFFER_SIZE=0), its hook was preferred (ALTORCH_FLIGHT_RECORDER),
  // or it is too old to be shown anything.
  TorchFlightLog(const FlightGroup& group, Description description, bool for_torch);
  void issued(const ObservedCall& call) override;
  void failed(const ObservedCall& call, const Error& error) override;
  // Whether torch's hook, which takes a call that gave no Work for one that hangs, records the group: where it is to, and in
  // spite of all one that another backend serves on another device, or that somebody has attached it to before its first
  // call. What is attached later records on top.
  bool hooked() const { return hooked_.load(std::memory_order_relaxed); }

 private:
  void look();

  const std::string name_;
  const int rank_in_job_;
  const bool for_torch_;
  const Description description_;
  std::atomic<bool> looked_{false}, hooked_{false}, dumped_{false};
};

// What is wrong with the variables by which torch and altorch are told how many calls to record.
std::optional<Error> wrong_recorder_size();
// Whether torch's hook is to leave altorch's groups alone.
bool records_for_itself();
// Whether torch's hook records a group that altorch does not.
bool torch_records();

// Shows torch what was recorded until now; it sees the rest within a second. For whoever asks torch at once.
void publish_flight_record();
// Has torch write its file soon; says which, or why not. Does not wait. `rank`: of this process in the job.
std::string dump_flight_record(int rank, bool missed);

}  // namespace altorch::backend
