// SPDX-License-Identifier: BSD-3-Clause
#include "backend/recorder/torch_recorder.h"

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend/hooks/torch_hooks.h"
#include "base/number.h"

#if defined(ALTORCH_RECORDS)
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "backend/recorder/flight_publisher.h"
#include "base/env.h"
#endif

#include "trace/trace_board.h"

namespace altorch::backend {
namespace {

constexpr std::size_t kFewestEntries = 256;    // what `altorch trace` needs
constexpr std::size_t kMostEntries = 1 << 16;  // which are there from the beginning

// With spaces around it, and a sign.
std::optional<int> as_torch_reads(std::string_view text) {
  constexpr const char* kSpaces = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return to_number<int>(text);
}

struct Wanted {
  const char* name = nullptr;  // of the variable that says so; null: none
  std::string value;
};
// The variables that torch's own recorder reads.
Wanted wanted() {
  for (const char* name : {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}) {
    const char* value = std::getenv(name);
    if (value && *value) return {name, value};
  }
  return {};
}
std::size_t entries_wanted() {
  const Wanted said = wanted();
  if (!said.name) return 2000;
  return static_cast<std::size_t>(std::max(0, as_torch_reads(said.value).value_or(0)));
}

FlightGroup flight_group(const std::string& name, int rank, const std::vector<int>& global_ranks) {
  FlightGroup group;
  group.name = name;
  group.rank = rank;
  group.global_ranks = global_ranks;
  return group;
}

}  // namespace

std::optional<Error> wrong_recorder_size() {
  const Wanted said = wanted();
  if (!said.name || as_torch_reads(said.value)) return std::nullopt;
  return Error(
      ErrorKind::kInvalidArgument,
      std::string(said.name) + "=" + excerpt(said.value) +
          " is no whole number that an int holds: how many calls the flight recorder keeps, 0 for none");
}

TorchFlightLog::TorchFlightLog(const FlightGroup& group, Description description, bool for_torch)
    : FlightLog(process_recorder(), group),
      name_(group.name),
      rank_in_job_(group.global_ranks[static_cast<std::size_t>(group.rank)]),
      for_torch_(for_torch),
      description_(std::move(description)),
      hooked_(!for_torch && torch_records()) {}

FlightRecorder& process_recorder() {
  return FlightRecorder::of_process(std::clamp(entries_wanted(), kFewestEntries, kMostEntries));
}

bool torch_records() {
#if defined(C10D_BACKEND_HAS_HOOKS)
  static const bool on = entries_wanted() > 0;
  return on;
#else
  return false;
#endif
}

#if defined(ALTORCH_RECORDS)

namespace {

// Hooks are torch's own business, but for whether there are any.
struct Hooks : c10d::ProcessGroup {
  static bool any(const c10d::ProcessGroup& group) { return !(group.*(&Hooks::preHooks_)).empty(); }
};

// Read once, while torch's list of names is there: it is no more when a call fails in a process
// that ends.
bool files_wanted() {
  static const bool wanted = [] {
    try {
      return c10d::getCvarBool(c10d::TORCH_FR_DUMP_ON_TIMEOUT, true);
    } catch (const std::exception&) {  // it is neither
      return true;
    }
  }();
  return wanted;
}

}  // namespace

bool records_for_itself() { return setting("ALTORCH_FLIGHT_RECORDER") == "own"; }

std::shared_ptr<TorchFlightLog> TorchFlightLog::make(const std::string& name, int rank,
                                                     const std::vector<int>& global_ranks,
                                                     Description description) {
  const bool for_torch = records_for_itself() && FlightPublisher::instance();
  if (!for_torch && !TraceBoard::is_wanted()) return nullptr;
  files_wanted();
  return std::make_shared<TorchFlightLog>(flight_group(name, rank, global_ranks), std::move(description),
                                          for_torch);
}

// torch attaches its hook between the making of a group and its first call.
void TorchFlightLog::issued(const ObservedCall& call) {
  if (!looked_.load(std::memory_order_relaxed)) look();
  FlightLog::issued(call);
}

void TorchFlightLog::look() {
  if (for_torch_) {
    if (!c10d::is_process_group_registered(name_)) return;
    hooked_.store(Hooks::any(*c10d::resolve_process_group(name_)));
  }
  recorder_.describe(group_, description_(), for_torch_ && !hooked());
  looked_.store(true);
}

void TorchFlightLog::failed(const ObservedCall& call, const Error& error) {
  FlightLog::failed(call, error);
  if (is_one_sided(call.call.kind)) return;  // torch knows none
  if (!call.number || !for_torch_ || hooked() || !failed_under_way(error.kind()) || !files_wanted()) return;
  if (!dumped_.exchange(true)) FlightPublisher::instance()->dump(rank_in_job_);
}

void publish_flight_record() {
  if (auto* const publisher = FlightPublisher::instance()) publisher->publish();
}

std::string dump_flight_record(int rank, bool missed) {
  if (missed && !files_wanted()) return "none, TORCH_FR_DUMP_ON_TIMEOUT is off";
  auto* const publisher = FlightPublisher::instance();
  if (!publisher) return "none, torch's flight recorder is off (TORCH_FR_BUFFER_SIZE)";
  return publisher->dump(rank);
}

#else

bool records_for_itself() { return false; }
std::shared_ptr<TorchFlightLog> TorchFlightLog::make(const std::string& name, int rank,
                                                     const std::vector<int>& global_ranks,
                                                     Description description) {
  if (!TraceBoard::is_wanted()) return nullptr;
  return std::make_shared<TorchFlightLog>(flight_group(name, rank, global_ranks), std::move(description),
                                          /*for_torch=*/false);
}

void TorchFlightLog::issued(const ObservedCall& call) {
  if (!looked_.load(std::memory_order_relaxed)) look();
  FlightLog::issued(call);
}

void TorchFlightLog::look() {
  recorder_.describe(group_, description_(), /*published=*/false);
  looked_.store(true);
}

void TorchFlightLog::failed(const ObservedCall& call, const Error& error) { FlightLog::failed(call, error); }
void publish_flight_record() {}
std::string dump_flight_record(int, bool) { return "none, torch records altorch's calls from 2.15 on"; }

#endif

}  // namespace altorch::backend
