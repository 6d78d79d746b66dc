// SPDX-License-Identifier: BSD-3-Clause
// The groups of this process, for who asks from outside what they are at.
//
// From the first group to the last a thread (thread.h) waits for such questions; ALTORCH_TRACE says which ones it takes. Thread
// rules: any thread. Nothing here waits for a peer, a call or Python. In a forked child, which has neither groups nor thread,
// nothing happens.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "observe/trace/report.h"
#include "observe/trace/trace_thread.h"

namespace altorch {

struct JobWatch;

// A group, as it reports. Thread rules: asked by any thread, at any time between add() and the end of remove(); locks
// nothing for longer than a look takes.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  // All but what the flight recorder knows.
  virtual GroupReport report() const = 0;
  // The recorder of its calls; may be null.
  virtual const FlightRecorder* recorder() const = 0;
};

class TraceBoard {
 public:
  // The one of this process, never destroyed, as no other may be that has ever been given a source.
  static TraceBoard& instance();
  TraceBoard();

  // Whether anybody may ask (ALTORCH_TRACE).
  static bool is_wanted();
  // `source` must stay until remove(), which waits for a report that is being made, and, with the last source, for the
  // end of the thread.
  void add(const TraceSource& source);
  void remove(const TraceSource& source);
  // At exit, whatever groups there are left: writes down what there was (ALTORCH_METRICS). Who asks is still answered.
  void write_last_metrics() const;

  // Has somebody write all that is recorded into a file, soon; says which, or why not, in a clause. The last one that was
  // given is asked. `missed`: nobody has asked for it, but a call has missed its deadline.
  using Dump = std::string (*)(int rank_in_job, bool missed);
  void set_dump(Dump dump);
  std::string dump(bool missed = false) const;
  // Says where the program's main thread is; empty where it cannot soon. The last one that was given is asked.
  using Place = std::string (*)();
  void set_place(Place place);

  ProcessReport report() const;
  // With ProcessReport::place. Takes a moment.
  ProcessReport report_with_place() const;

 private:
  const long process_;
  std::mutex life_mutex_;  // before mutex_; guards thread_
  std::unique_ptr<TraceThread> thread_;
  mutable std::mutex mutex_;  // guards what follows, and is held while sources report
  std::vector<const TraceSource*> sources_;
  Dump dump_ = nullptr;
  Place place_ = nullptr;
};

JobReport job_report(const JobWatch& watch);

}  // namespace altorch
