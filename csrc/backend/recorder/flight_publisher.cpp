// SPDX-License-Identifier: BSD-3-Clause
#include "backend/recorder/flight_publisher.h"

#if defined(ALTORCH_RECORDS)

#include <torch/csrc/profiler/combined_traceback.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include "backend/c10d/tensors.h"
#include "base/log.h"
#include "platform/native_thread.h"
#include "transports/channel.h"

namespace altorch::backend {
namespace {

constexpr std::chrono::seconds kEvery{1}, kDumpTimeout{2};
using Theirs = c10d::FlightRecorder<c10::Event>;

std::string title(const FlightEntry& entry, int rank) {
  const std::string name = std::string("al:") + name_of(entry.kind);
  if (!is_message(entry.kind)) return name;
  const std::string peer = entry.root == kAnySource ? "?" : std::to_string(entry.root);
  return name + " " + std::to_string(rank) + (entry.kind == OpKind::kSend ? "->" : "<-") + peer;
}

// As a tensor of one dimension: a call knows its elements only.
void set_tensor(std::optional<std::int64_t> elements, at::ScalarType type,
                c10::SmallVector<std::int64_t, 4>& dims, std::vector<c10::ScalarType>& types,
                c10::SmallVector<std::int64_t, 8>& sizes) {
  if (!elements) return;
  dims.push_back(1);
  types.push_back(type);
  sizes.push_back(*elements);
}

// torch's tools match calls by group and number, and a group numbers its collectives on CUDA
// tensors apart.
constexpr std::uint64_t kStatusOnGpu = std::uint64_t{1} << 62;  // in a key of all_pg_status_
std::string name_of(const FlightGroup& group, bool on_gpu) {
  return on_gpu ? group.name + " (CUDA)" : group.name;
}

Theirs::Entry converted(const FlightEntry& entry, const FlightGroup& group) {
  static const auto& no_stack = *new std::shared_ptr<torch::CapturedTraceback>(
      torch::CapturedTraceback::gather(/*python=*/false, /*script=*/false, /*cpp=*/false));
  Theirs::Entry made{};
  made.pg_id_ = group.id;
  made.pg_name_ = {name_of(group, entry.on_gpu), group.description};
  made.collective_seq_id_ = entry.sequence;
  made.p2p_seq_id_ = entry.message;
  made.op_id_ = entry.number;
  made.profiling_name_ = title(entry, group.rank);
  made.traceback_ = no_stack;
  made.time_created_ = entry.issued_ns;
  made.timeout_ms_ = entry.timeout_ms;
  made.isP2P_ = entry.message != 0;
  const at::ScalarType type = scalar_type_of(entry.dtype);
  set_tensor(entry.input, type, made.input_dims_, made.input_dtypes_, made.sizes_);
  set_tensor(entry.output, type, made.output_dims_, made.output_dtypes_, made.sizes_);
  return made;
}

// A call that failed is retired without having been completed: what torch says of one that timed
// out.
void set_state(const FlightEntry& from, Theirs::Entry& to) {
  const std::int64_t started =
      from.ended_ns && from.took.count() ? from.ended_ns - from.took.count() : from.issued_ns;
  if (from.state != FlightState::kIssued) to.time_discovered_started_ = started;
  if (from.state == FlightState::kFinished) {
    to.time_discovered_completed_ = from.ended_ns;
    if (from.took.count()) to.duration_ = static_cast<float>(static_cast<double>(from.took.count()) / 1e6);
  }
  to.retired_ = from.state >= FlightState::kFinished;
}

// As torch itself adds one. Its mutex is held.
std::size_t append(Theirs& theirs, Theirs::Entry entry) {
  const std::size_t id = entry.id_ = theirs.id_++;
  entry.reset_epoch_ = theirs.reset_epoch_;
  const std::size_t place = theirs.next_++;
  if (theirs.entries_.size() < theirs.max_entries_) {
    theirs.entries_.push_back(std::move(entry));
  } else {
    theirs.entries_[place] = std::move(entry);
  }
  if (theirs.next_ == theirs.max_entries_) theirs.next_ = 0;
  return id;
}

Theirs::Entry* find(Theirs& theirs, std::size_t id, std::size_t epoch) {
  const auto began = theirs.reset_epoch_start_idx_.find(epoch);
  if (began == theirs.reset_epoch_start_idx_.end()) return nullptr;
  const std::size_t place = (began->second + id) % theirs.max_entries_;
  if (place >= theirs.entries_.size()) return nullptr;
  Theirs::Entry& entry = theirs.entries_[place];
  return entry.id_ == id && entry.reset_epoch_ == epoch ? &entry : nullptr;
}

void count(Theirs& theirs, const FlightEntry& entry) {
  if (entry.message) return;
  auto& status = theirs.all_pg_status_[entry.group | (entry.on_gpu ? kStatusOnGpu : 0)];
  if (!status) status = std::make_shared<c10d::ProcessGroupStatus>();
  const auto sequence = static_cast<std::int64_t>(entry.sequence);
  const auto raise = [&](std::int64_t& last) { last = std::max(last, sequence); };
  raise(status->lastEnqueuedSeq);
  if (entry.state != FlightState::kIssued) raise(status->lastStartedSeq);
  if (entry.state == FlightState::kFinished) raise(status->lastCompletedSeq);
}

// The prefix of the file that torch writes, unless the program has given torch another writer.
// torch itself reports the file only when it creates its folder.
std::string file_prefix() {
  for (const char* name : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}) {
    if (const char* given = std::getenv(name); given && *given) return given;
  }
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const std::string folder = cache && *cache ? cache : std::string(home ? home : "") + "/.cache";
  return folder + "/torch/comm_lib_trace_rank_";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Without the stacks of what torch's hook may have recorded beside: those want Python's lock.
void write_file() {
  try {
    c10d::try_dump_fr_trace_file(/*includeCollectives=*/true, /*includeStackTraces=*/false,
                                 /*onlyActive=*/false, "al");
  } catch (const std::exception& error) {
    log(LogLevel::kWarning,
        std::string("the flight record could not be written: ") + first_line(error.what()));
  }
}

}  // namespace

FlightPublisher* FlightPublisher::instance() {
  static auto* const publisher = []() -> FlightPublisher* {
    try {
      auto* const theirs = c10d::getFlightRecorder("al");
      return theirs->enabled_ ? new FlightPublisher(*theirs) : nullptr;
    } catch (const Error& error) {
      log(LogLevel::kWarning, std::string("no call is recorded: ") + error.what());
      return nullptr;
    } catch (const std::exception& error) {
      log(LogLevel::kWarning,
          std::string("no call is recorded, since torch's flight recorder refuses its variables: ") +
              first_line(error.what()));
      return nullptr;
    }
  }();
  return publisher;
}

FlightPublisher::FlightPublisher(Theirs& theirs)
    : theirs_(theirs), recorder_(process_recorder()), process_(getpid()), file_prefix_(file_prefix()) {
  start_native_thread("al-recorder", [this] { loop(); });
  std::atexit([] { instance()->stop(); });
}

void FlightPublisher::stop() {
  if (getpid() != process_) return;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kDumpTimeout, [&] { return dumps_done_ >= dumps_wanted_; });
  stopped_ = true;
}

void FlightPublisher::publish() {
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (!stopped_) copy();
}

// The thread that holds mutex_ may wait for torch's mutex, and the holder of that one for Python's
// lock. So this does not wait for mutex_; al-recorder may then notice the request a second later.
std::string FlightPublisher::dump(int rank) {
  if (getpid() != process_) return "none, in a forked child";
  theirs_.setRank(rank);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  ++dumps_wanted_;
  changed_.notify_all();
  recorder_.nudge();
  return file_prefix_ + std::to_string(rank);
}

void FlightPublisher::loop() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const std::uint64_t changes = recorder_.changes();
    const bool busy = copy();
    if (const int wanted = dumps_wanted_; wanted > dumps_done_) {
      lock.unlock();
      write_file();
      lock.lock();
      dumps_done_ = wanted;
      changed_.notify_all();
      continue;
    }
    if (busy || recorder_.changes() != changes) {
      changed_.wait_for(lock, kEvery, [&] { return dumps_wanted_ > dumps_done_; });
      continue;
    }
    lock.unlock();
    recorder_.sleep_while(changes);
    lock.lock();
  }
}

bool FlightPublisher::copy() {
  Theirs& theirs = theirs_;
  const auto entries = recorder_.entries();
  std::unordered_map<std::uint64_t, std::optional<FlightGroup>> groups;
  bool busy = false;
  const std::lock_guard lock(theirs.mutex_);
  for (const FlightEntry& entry : entries) {
    if (is_one_sided(entry.kind)) continue;  // torch's tools know calls of all ranks and messages
    busy |= entry.state < FlightState::kFinished;
    auto shown = shown_.find(entry.number);
    if (shown == shown_.end()) {
      const auto [known, is_new] = groups.try_emplace(entry.group);
      auto& group = known->second;
      if (is_new) group = recorder_.group(entry.group);
      if (!group || !group->published) continue;
      auto& ranks = theirs.pg_name_to_ranks_[{name_of(*group, entry.on_gpu), group->description}];
      if (!std::ranges::equal(ranks, group->global_ranks))
        ranks.assign(group->global_ranks.begin(), group->global_ranks.end());
      Theirs::Entry made = converted(entry, *group);
      set_state(entry, made);
      const std::size_t id = append(theirs, std::move(made));
      shown_[entry.number] = {id, theirs.reset_epoch_, entry.state};
    } else if (shown->second.state != entry.state) {
      if (Theirs::Entry* known = find(theirs, shown->second.id, shown->second.epoch))
        set_state(entry, *known);
      shown->second.state = entry.state;
    } else {
      continue;
    }
    count(theirs, entry);
  }
  // A call that the ring has lost is over, or nothing more will be recorded of it.
  if (!entries.empty())
    std::erase_if(shown_, [&](const auto& known) { return known.first < entries.front().number; });
  return busy;
}

}  // namespace altorch::backend

#endif
