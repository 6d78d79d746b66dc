// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/window.h"

#include <algorithm>
#include <string>
#include <thread>

namespace altorch::shm {
namespace {

constexpr std::chrono::milliseconds kLastVisits{2000};

}  // namespace

std::size_t ShmWindow::control_bytes(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return ranks * sizeof(Desk) + ranks * ranks * sizeof(Signals);
}

ShmWindow::ShmWindow(std::shared_ptr<std::byte> control, int rank, std::vector<Part> parts, bool crowded)
    : control_(std::move(control)),
      rank_(rank),
      parts_(std::move(parts)),
      crowded_(crowded),
      desks_(reinterpret_cast<Desk*>(control_.get())),
      signals_(reinterpret_cast<Signals*>(desks_ + parts_.size())) {}

std::uint64_t ShmWindow::signals(int source, int slot) const {
  return signals_of(rank_, source).slots[slot].load(std::memory_order_acquire);
}

WaitTarget ShmWindow::wait_target(int source, int slot, std::uint64_t least) const {
  return {signals_of(rank_, source).slots[slot], desks_[rank_].sleepers, least, crowded_};
}

// The right to do more than copy, for as long as it lives.
class ShmWindow::Lock {
 public:
  Lock(Desk& desk, int rank, bool wanted) : desk_(desk), wanted_(wanted) {
    std::uint32_t expected = 0;
    held_ =
        !wanted || desk.lock.compare_exchange_strong(expected, static_cast<std::uint32_t>(rank) + 1,
                                                     std::memory_order_acquire, std::memory_order_relaxed);
  }
  ~Lock() {
    if (wanted_ && held_) desk_.lock.store(0, std::memory_order_release);
  }
  Lock(const Lock&) = delete;
  bool held() const { return held_; }

 private:
  Desk& desk_;
  const bool wanted_;
  bool held_;
};

// Its owner does not let the memory go while one lives. Counted before `closed` is read; close()
// writes that before it reads the count: one of the two sees the other.
class ShmWindow::Visit {
 public:
  explicit Visit(Desk& desk) : desk_(desk) { desk_.visitors.fetch_add(1, std::memory_order_seq_cst); }
  ~Visit() { desk_.visitors.fetch_sub(1, std::memory_order_release); }
  Visit(const Visit&) = delete;
  bool welcome() const { return desk_.closed.load(std::memory_order_seq_cst) == 0; }

 private:
  Desk& desk_;
};

State ShmWindow::begin(WindowCall& call, std::optional<Error>& error) {
  Desk& desk = desks_[call.peer];
  const Lock lock(desk, rank_, is_atomic(call.access));
  if (!lock.held()) return State::kPending;
  const Visit visit(desk);
  if (!visit.welcome()) {
    error = window_closed_by(call.peer);
    return State::kFailed;
  }
  if (!carry_out(call)) {
    error = unreadable(call.peer);
    return State::kFailed;
  }
  if (call.slot != kNoSlot) WaitTarget::raise(signals_of(call.peer, rank_).slots[call.slot], desk.sleepers);
  return State::kDone;
}

bool ShmWindow::carry_out(WindowCall& call) {
  const Part& part = parts_[static_cast<std::size_t>(call.peer)];
  if (part.mapped) {
    access_memory(call, part.mapped.get());
    return true;
  }
  if (call.row_bytes == 0) return true;
  for (std::size_t row = 0; row < call.rows; ++row) {
    const std::uint64_t there = part.address + call.offset + row * call.stride;
    const std::size_t here = row * call.row_bytes;
    const auto* from = static_cast<const std::byte*>(call.from) + here;
    auto* into = static_cast<std::byte*>(call.into) + here;
    bool done = false;
    if (call.access == Access::kPut) {
      done = part.process.write(there, from, call.row_bytes);
    } else if (call.access == Access::kGet) {
      done = part.process.read(there, into, call.row_bytes);
    } else {
      done = change(call, part.process, there, from);
    }
    if (!done) return false;
  }
  return true;
}

// More than a copy happens here, a piece at a time.
bool ShmWindow::change(WindowCall& call, const Process& process, std::uint64_t there, const std::byte* from) {
  alignas(16) std::byte piece[16 << 10];
  for (std::size_t done = 0; done < call.row_bytes; done += sizeof piece) {
    WindowCall part;
    part.access = call.access, part.dtype = call.dtype, part.op = call.op;
    part.operand = call.operand, part.expected = call.expected;
    part.row_bytes = std::min(sizeof piece, call.row_bytes - done);
    part.from = from + done;
    if (!process.read(there + done, piece, part.row_bytes)) return false;
    access_memory(part, piece);
    call.found = part.found;
    if (!process.write(there + done, piece, part.row_bytes)) return false;
  }
  return true;
}

bool ShmWindow::close(bool) {
  Desk& desk = desks_[rank_];
  desk.closed.store(1, std::memory_order_seq_cst);
  const auto until = std::chrono::steady_clock::now() + kLastVisits;
  while (desk.visitors.load(std::memory_order_seq_cst) != 0) {
    if (std::chrono::steady_clock::now() > until)
      return false;  // a peer died, or is stopped, while it copied
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace altorch::shm
