// SPDX-License-Identifier: BSD-3-Clause
#include "trace/flight_recorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/shape.h"

namespace altorch {
namespace {

constexpr std::int64_t kNone = -1;
constexpr std::uint64_t kOnGpu = 1 << 16;  // in Slot::what
constexpr std::uint64_t kBeingWritten = ~std::uint64_t{0};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Asked once for each thread: the system would take longer than all the rest.
long this_thread() {
  thread_local const long id = syscall(SYS_gettid);
  return id;
}

std::optional<std::int64_t> known(std::int64_t count) {
  return count == kNone ? std::nullopt : std::optional(count);
}

}  // namespace

FlightRecorder::FlightRecorder(std::size_t capacity) : slots_(std::max<std::size_t>(capacity, 1)) {}

FlightRecorder& FlightRecorder::of_process(std::size_t capacity) {
  static auto* const recorder = new FlightRecorder(capacity);
  return *recorder;
}

std::uint64_t FlightRecorder::add(FlightGroup group) {
  const std::lock_guard lock(mutex_);
  if (groups_.size() > slots_.size()) {
    std::set<std::uint64_t> in_ring;
    for (const Slot& slot : slots_) in_ring.insert(slot.group.load());
    std::erase_if(groups_,
                  [&](const auto& known) { return known.second.ended && !in_ring.contains(known.first); });
  }
  group.id = ++last_group_;
  groups_.emplace(group.id, std::move(group));
  return last_group_;
}

void FlightRecorder::end(std::uint64_t group) {
  const std::lock_guard lock(mutex_);
  if (const auto found = groups_.find(group); found != groups_.end()) found->second.ended = true;
}

std::optional<FlightGroup> FlightRecorder::group(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(id);
  return found == groups_.end() ? std::nullopt : std::optional(found->second);
}

void FlightRecorder::describe(std::uint64_t id, const std::string& description, bool published) {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  found->second.description = description;
  found->second.published = published;
}

// The tag is kBeingWritten while the fields change, and is set behind them. A reader that finds the
// same tag before and after the fields has read those of one call. Each store releases and each
// load acquires, so no fence is needed; the thread sanitizer does not know fences.
void FlightRecorder::issued(const FlightEntry& entry) {
  constexpr auto after = std::memory_order_release;
  Slot& own = slot(entry.number);
  // A thread that was delayed until the ring came round to this slot gives way to the later call.
  std::uint64_t before = own.tag.load(std::memory_order_relaxed);
  if (before == kBeingWritten || before >> 2 > entry.number ||
      !own.tag.compare_exchange_strong(before, kBeingWritten, std::memory_order_acq_rel))
    return nudge();
  own.group.store(entry.group, after);
  own.sequence.store(entry.sequence, after);
  own.message.store(entry.message, after);
  own.what.store(static_cast<std::uint64_t>(static_cast<std::uint32_t>(entry.root)) << 32 |
                     (entry.on_gpu ? kOnGpu : 0) | static_cast<std::uint64_t>(entry.kind) << 8 |
                     static_cast<std::uint64_t>(entry.dtype),
                 after);
  own.input.store(entry.input.value_or(kNone), after);
  own.output.store(entry.output.value_or(kNone), after);
  own.tag_of_message.store(entry.tag, after);
  own.access.store(entry.access, after);
  own.thread.store(entry.thread, after);
  own.timeout_ms.store(entry.timeout_ms, after);
  own.issued_ns.store(now_ns(), after);
  own.ended_ns.store(0, after);
  own.took_ns.store(0, after);
  own.tag.store(entry.number << 2 | static_cast<std::uint64_t>(FlightState::kIssued), after);
  nudge();
}

void FlightRecorder::ended(std::uint64_t number, FlightState how, std::chrono::nanoseconds took) {
  advance(number, how, now_ns(), took);
}

// A slot that has become another call's meanwhile keeps its tag, and sets its times anew when it
// ends.
void FlightRecorder::advance(std::uint64_t number, FlightState state, std::int64_t ended_ns,
                             std::chrono::nanoseconds took) {
  if (number == 0) return;  // it was refused before it had a place
  Slot& own = slot(number);
  std::uint64_t tag = own.tag.load(std::memory_order_relaxed);
  const std::uint64_t next = number << 2 | static_cast<std::uint64_t>(state);
  // A call ends once: what is told of it behind that is of its group's end.
  if (tag >> 2 != number || (tag & 3) >= static_cast<std::uint64_t>(FlightState::kFinished)) return;
  if (ended_ns) {
    own.ended_ns.store(ended_ns, std::memory_order_release);
    own.took_ns.store(took.count(), std::memory_order_release);
  }
  own.tag.compare_exchange_strong(tag, next, std::memory_order_acq_rel);
}

std::vector<FlightEntry> FlightRecorder::entries() const {
  std::vector<FlightEntry> found;
  found.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    constexpr auto before = std::memory_order_acquire;
    for (int attempt = 0; attempt < 3; ++attempt) {
      const std::uint64_t tag = slot.tag.load(before);
      if (tag == 0 || tag == kBeingWritten) continue;
      FlightEntry entry;
      entry.number = tag >> 2;
      entry.state = static_cast<FlightState>(tag & 3);
      entry.group = slot.group.load(before);
      entry.sequence = slot.sequence.load(before);
      entry.message = slot.message.load(before);
      const std::uint64_t what = slot.what.load(before);
      entry.root = static_cast<int>(static_cast<std::uint32_t>(what >> 32));
      entry.kind = static_cast<OpKind>(what >> 8 & 0xFF);
      entry.on_gpu = (what & kOnGpu) != 0;
      entry.dtype = static_cast<DType>(what & 0xFF);
      entry.input = known(slot.input.load(before));
      entry.output = known(slot.output.load(before));
      entry.tag = slot.tag_of_message.load(before);
      entry.access = slot.access.load(before);
      entry.thread = slot.thread.load(before);
      entry.timeout_ms = slot.timeout_ms.load(before);
      entry.issued_ns = slot.issued_ns.load(before);
      entry.ended_ns = slot.ended_ns.load(before);
      entry.took = std::chrono::nanoseconds(slot.took_ns.load(before));
      if (slot.tag.load(std::memory_order_relaxed) != tag) continue;
      if (entry.state < FlightState::kFinished) entry.ended_ns = 0, entry.took = {};
      found.push_back(entry);
      break;
    }
  }
  std::sort(found.begin(), found.end(),
            [](const FlightEntry& a, const FlightEntry& b) { return a.number < b.number; });
  return found;
}

void FlightRecorder::sleep_while(std::uint64_t changes) {
  asleep_.store(true, std::memory_order_seq_cst);
  if (changes_.load(std::memory_order_seq_cst) == changes) asleep_.wait(true);
  asleep_.store(false, std::memory_order_relaxed);
}

void FlightRecorder::wake() {
  if (asleep_.exchange(false)) asleep_.notify_all();
}

FlightLog::FlightLog(FlightRecorder& recorder, FlightGroup group)
    : recorder_(recorder),
      rank_(group.rank),
      size_(static_cast<int>(group.global_ranks.size())),
      group_(recorder.add(std::move(group))) {}

void FlightLog::issued(const ObservedCall& observed) {
  const Call& call = observed.call;
  const Elements elements = elements_of(call, rank_, size_);
  FlightEntry entry;
  entry.number = observed.number;
  entry.group = group_;
  entry.kind = call.kind;
  entry.dtype = call.dtype;
  entry.on_gpu = observed.on_gpu;
  entry.root = call.root;
  entry.sequence = observed.sequence;
  if (call.is_message()) entry.message = messages_.fetch_add(1, std::memory_order_relaxed) + 1;
  entry.tag = observed.tag;
  entry.access = observed.access;
  entry.thread = this_thread();
  entry.input = elements.input;
  entry.output = elements.output;
  entry.timeout_ms = observed.timeout.count();
  recorder_.issued(entry);
}

void FlightLog::started(const ObservedCall& call) { recorder_.started(call.number); }

void FlightLog::finished(const ObservedCall& call, const char*, std::string_view,
                         std::chrono::nanoseconds took) {
  recorder_.ended(call.number, FlightState::kFinished, took);
}

void FlightLog::failed(const ObservedCall& call, const Error&) {
  recorder_.ended(call.number, FlightState::kFailed, {});
}

}  // namespace altorch
