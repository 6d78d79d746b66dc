#include "backend/torch_recorder.h"

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend/torch_hooks.h"

#if defined(ALTORCH_RECORDS)
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "backend/flight_publisher.h"
#include "common/env.h"
#endif

namespace altorch::backend {
namespace {

// The variables that torch's own recorder reads.
[[maybe_unused]] std::size_t entries_wanted() {
  for (const char* name : {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}) {
    const char* value = std::getenv(name);
    if (value && *value) return static_cast<std::size_t>(std::max(0, std::atoi(value)));
  }
  return 2000;
}

}  // namespace

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

bool files_wanted() {
  try {
    return c10d::getCvarBool(c10d::TORCH_FR_DUMP_ON_TIMEOUT, true);
  } catch (const std::exception&) {  // it is neither
    return true;
  }
}

}  // namespace

bool records_for_itself() { return setting("ALTORCH_FLIGHT_RECORDER") == "own"; }

std::shared_ptr<TorchFlightLog> TorchFlightLog::make(const std::string& name, int rank,
                                                     const std::vector<int>& global_ranks) {
  if (!records_for_itself() || !FlightPublisher::instance()) return nullptr;
  FlightGroup group;
  group.name = name;
  group.rank = rank;
  group.global_ranks = global_ranks;
  return std::make_shared<TorchFlightLog>(FlightPublisher::instance()->recorder(), group);
}

TorchFlightLog::TorchFlightLog(FlightRecorder& recorder, const FlightGroup& group)
    : FlightLog(recorder, group),
      name_(group.name),
      rank_in_job_(group.global_ranks[static_cast<std::size_t>(group.rank)]) {}

// torch attaches its hook between the making of a group and its first call.
void TorchFlightLog::issued(const ObservedCall& call) {
  if (!looked_.load(std::memory_order_relaxed)) look();
  if (!hooked()) FlightLog::issued(call);
}

void TorchFlightLog::look() {
  if (!c10d::is_process_group_registered(name_)) return;
  const auto group = c10d::resolve_process_group(name_);
  recorder_.describe(group_, group->getGroupDesc());
  hooked_.store(Hooks::any(*group));
  looked_.store(true);
}

void TorchFlightLog::failed(const ObservedCall& call, const Error& error) {
  FlightLog::failed(call, error);
  if (!call.number || hooked() || !failed_under_way(error.kind()) || !files_wanted()) return;
  if (!dumped_.exchange(true)) FlightPublisher::instance()->dump(rank_in_job_);
}

void publish_flight_record() {
  if (auto* const publisher = FlightPublisher::instance()) publisher->publish();
}

#else

bool records_for_itself() { return false; }
std::shared_ptr<TorchFlightLog> TorchFlightLog::make(const std::string&, int, const std::vector<int>&) {
  return nullptr;
}
TorchFlightLog::TorchFlightLog(FlightRecorder& recorder, const FlightGroup& group)
    : FlightLog(recorder, group), rank_in_job_(group.rank) {}
void TorchFlightLog::issued(const ObservedCall& call) { FlightLog::issued(call); }
void TorchFlightLog::failed(const ObservedCall& call, const Error& error) { FlightLog::failed(call, error); }
void publish_flight_record() {}

#endif

}  // namespace altorch::backend
