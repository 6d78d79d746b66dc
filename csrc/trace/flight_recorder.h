// SPDX-License-Identifier: BSD-3-Clause
// The latest calls of this process, in all its groups: to be read when a job hangs.
//
// A ring of fixed size. Writing an entry takes two looks at the clock and a few stores: no lock, no
// allocation, no stack trace. An entry may be read while it is written, so its fields are atomics,
// and `tag` identifies the call that they belong to. Thread rules: any thread, several at once; one
// thread sleeps in sleep_while().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trace/observer.h"

namespace altorch {

struct FlightGroup {
  std::uint64_t id = 0;  // in this process
  std::string name, description;
  int rank = 0;                        // of this process in it
  std::vector<int> global_ranks = {};  // by rank
  bool published = true;               // to torch's recorder
  bool ended = false;
};

enum class FlightState : std::uint8_t { kIssued, kStarted, kFinished, kFailed };

struct FlightEntry {
  std::uint64_t number = 0;  // of the call in this process
  std::uint64_t group = 0;   // FlightGroup::id
  FlightState state = FlightState::kIssued;
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kUInt8;
  bool on_gpu = false;
  int root = 0;                  // or the peer of a message
  std::uint64_t sequence = 0;    // of the group's collectives on CPU tensors, or on CUDA tensors
  std::uint64_t message = 0;     // of the group's messages, from 1; 0: a collective
  std::int64_t tag = 0;          // of a message; one-sided: which window
  const char* access = nullptr;  // one-sided: what, a literal
  long thread = 0;               // the system's number of the thread that made the call
  std::optional<std::int64_t> input = {},
                              output = {};  // elements of this rank's; none: it has no such tensor
  std::int64_t timeout_ms = 0;
  std::int64_t issued_ns = 0;        // since the epoch
  std::int64_t ended_ns = 0;         // 0: not yet
  std::chrono::nanoseconds took{0};  // from its start; 0: not known
};

class FlightRecorder {
 public:
  explicit FlightRecorder(std::size_t capacity);

  // The recorder of this process. The first call makes it, with its `capacity`. It is never
  // destroyed.
  static FlightRecorder& of_process(std::size_t capacity);

  // Remembers a group until it has ended, and as long as the ring holds calls of it; returns its
  // id.
  std::uint64_t add(FlightGroup group);
  void end(std::uint64_t group);
  std::optional<FlightGroup> group(std::uint64_t id) const;
  void describe(std::uint64_t id, const std::string& description, bool published = true);

  void issued(const FlightEntry& entry);
  void started(std::uint64_t number) { advance(number, FlightState::kStarted, 0, {}); }
  void ended(std::uint64_t number, FlightState how, std::chrono::nanoseconds took);

  // What the ring holds, oldest first.
  std::vector<FlightEntry> entries() const;
  // Grows with every call that is recorded, and with every nudge.
  std::uint64_t changes() const { return changes_.load(); }
  // Sleeps until changes() is no longer `changes`.
  void sleep_while(std::uint64_t changes);
  void nudge() {
    // In one total order with sleep_while(): either that sees the new count, or this sees that it
    // sleeps.
    changes_.fetch_add(1, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst)) wake();
  }

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> tag{0};  // number << 2 | state; 0: empty, all ones: being written
    std::atomic<std::uint64_t> group{0}, sequence{0}, message{0}, what{0};
    std::atomic<std::int64_t> input{0}, output{0}, timeout_ms{0}, issued_ns{0}, ended_ns{0}, took_ns{0};
    std::atomic<std::int64_t> tag_of_message{0};
    std::atomic<const char*> access{nullptr};
    std::atomic<long> thread{0};
  };
  Slot& slot(std::uint64_t number) { return slots_[number % slots_.size()]; }
  void wake();
  void advance(std::uint64_t number, FlightState state, std::int64_t ended_ns, std::chrono::nanoseconds took);

  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> changes_{0};
  std::atomic<bool> asleep_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::uint64_t, FlightGroup> groups_;
  std::uint64_t last_group_ = 1'000'000;  // above the ids that torch gives to groups
};

// Records the calls of one group in a recorder, which outlives it. The `number` of a call is unique
// in the process (runtime/group.h).
class FlightLog : public Observer {
 public:
  FlightLog(FlightRecorder& recorder, FlightGroup group);
  ~FlightLog() override { recorder_.end(group_); }
  std::uint64_t group() const { return group_; }  // FlightGroup::id
  const FlightRecorder& recorder() const { return recorder_; }
  void issued(const ObservedCall& call) override;
  void started(const ObservedCall& call) override;
  void finished(const ObservedCall& call, const char* transport, std::string_view route,
                std::chrono::nanoseconds took) override;
  void failed(const ObservedCall& call, const Error& error) override;

 protected:
  FlightRecorder& recorder_;
  const int rank_, size_;
  const std::uint64_t group_;
  std::atomic<std::uint64_t> messages_{0};
};

}  // namespace altorch
