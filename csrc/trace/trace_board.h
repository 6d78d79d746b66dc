// SPDX-License-Identifier: BSD-3-Clause
// The groups of this process, for questions from outside: `altorch trace`, SIGUSR1, other ranks.
//
// From the first group to the last, a thread (trace_thread.h) waits for these questions;
// ALTORCH_TRACE says which ones it takes. Thread rules: any thread. Nothing here waits for a peer
// or a call, and only report_with_place() waits for Python, for a moment. In a forked child, which
// has neither groups nor thread, add(), remove() and write_last_metrics() do nothing; the others
// are not for it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trace/report.h"
#include "trace/trace_thread.h"

namespace altorch {

struct JobWatch;

// A group that reports. Thread rules: any thread may ask it, at any time between add() and the end
// of remove(). It holds a lock only for the time of a look.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  // The report without what the flight recorder knows.
  virtual GroupReport report() const = 0;
  // The recorder of its calls; may be null.
  virtual const FlightRecorder* recorder() const = 0;
};

class TraceBoard {
 public:
  // The board of this process, never destroyed. No board may be destroyed once it was given a
  // source.
  static TraceBoard& instance();
  TraceBoard();

  // Whether questions are answered (ALTORCH_TRACE).
  static bool is_wanted();
  // `source` must live until remove(). That waits for a report that is being made, and with the
  // last source for the end of the thread.
  void add(const TraceSource& source);
  void remove(const TraceSource& source);
  // Called at exit, even if groups are left: writes the metrics for the last time
  // (ALTORCH_METRICS). Questions are still answered.
  void write_last_metrics() const;

  // A Dump has all that is recorded written into a file soon. It returns, for people, the file's
  // name, or why there is none, as a clause. The last one that was set is called. `missed`: a call
  // has missed its deadline, and the user has not asked for the file.
  using Dump = std::string (*)(int rank_in_job, bool missed);
  void set_dump(Dump dump);
  std::string dump(bool missed = false) const;
  // A Place returns where the program's main thread is; empty if that takes too long. The last one
  // that was set is called.
  using Place = std::string (*)();
  void set_place(Place place);

  ProcessReport report() const;
  // With ProcessReport::place. Takes a moment.
  ProcessReport report_with_place() const;

 private:
  const long process_;
  std::mutex life_mutex_;  // locked before mutex_; guards thread_
  std::unique_ptr<TraceThread> thread_;
  mutable std::mutex mutex_;  // guards what follows, and is held while sources report
  std::vector<const TraceSource*> sources_;
  Dump dump_ = nullptr;
  Place place_ = nullptr;
};

JobReport job_report(const JobWatch& watch);

}  // namespace altorch
