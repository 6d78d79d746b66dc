// SPDX-License-Identifier: BSD-3-Clause
#include "windows/staged_access.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "windows/device_jobs.h"

namespace altorch {
namespace {

constexpr std::size_t kStagedByCopyEngine = 64 << 10;
constexpr int kServedAtOnce = 16;
constexpr std::chrono::seconds kServingTimeout{10};

bool counts(Access access) { return access == Access::kFetchAdd || access == Access::kCompareSwap; }

}  // namespace

struct StagedAccess::Passage : WindowCall::State {
  int lane = -1;
  std::size_t row = 0, column = 0;    // where the next piece begins
  std::size_t first = 0, behind = 0;  // pieces that have a slot: first <= piece < behind
  std::array<Piece, StagedBoard::kSlots> pieces{};
  std::uint32_t number = 0;  // of the last request
};

StagedAccess::StagedAccess(Device& device, Device& serving, StagedBoard board, int rank, int ranks,
                           std::byte* memory, const Registered& own, Spot& spot, const std::uint32_t* aborted)
    : device_(device),
      serving_device_(serving),
      board_(std::move(board)),
      rank_(rank),
      ranks_(ranks),
      memory_(memory),
      own_(own),
      aborted_(aborted),
      serving_(serving.make_stream()),
      spot_(spot),
      asked_(std::make_unique<std::atomic<std::uint32_t>[]>(at(ranks, 0))),
      served_(at(ranks, 0)) {
  try_out();
}

// Once each, with nothing: a kernel is loaded when it first runs, which may wait for all that the
// GPU is at. And that memory of one context is reached by kernels of another is seen, not written
// anywhere. No rank asks anything of itself, so that those places of the board are free.
void StagedAccess::try_out() {
  serving_device_.prepare_windows();
  serving_device_.move_window(only_raise(nullptr, nullptr, never()), serving_);
  try_out_updates(serving_device_, own_.dtype, never(), serving_);
  const StagedBoard::Request& second = board_.request(rank_, 0, rank_, 1);
  for (const std::uint32_t number : {0u, 1u}) {
    StagedBoard::Request& request = board_.request(rank_, 0, rank_, number);
    WindowNumber add;
    add.at = &spot_.counted;
    add.ended = never();
    add.operand = add.adds = 1;
    add.found = &request.found;
    add.answered = &request.counted;
    serving_device_.change_number(add, serving_);
  }
  const auto until = std::chrono::steady_clock::now() + kServingTimeout;
  const auto has_come = [&] {
    return std::atomic_ref(const_cast<std::uint32_t&>(second.counted)).load(std::memory_order_acquire) != 0;
  };
  while (!has_come() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (has_come() && second.found == 1) return;
  throw Error(ErrorKind::kUnsupported,
              "kernels of a second context on the GPU have not changed memory of the first one's within " +
                  std::to_string(kServingTimeout.count()) + " s");
}

State StagedAccess::begin(WindowCall& call) {
  if (call.captured)
    throw Error(ErrorKind::kUnsupported,
                std::string(kAccesses[call.access].name) +
                    " cannot go into a CUDA graph here: it goes through the host's memory, where its "
                    "requests have numbers that differ from replay to replay");
  if (call.access == Access::kAccumulate) check_update(call);
  call.state = std::make_unique<Passage>();
  return test(call);
}

State StagedAccess::test(WindowCall& call) {
  auto& passage = static_cast<Passage&>(*call.state);
  if (passage.lane < 0 && !take_lane(passage, call.stream)) return State::kPending;
  while (passage.row < call.rows) {
    if (!has_room(call, passage)) return State::kPending;
    if (passage.behind - passage.first == StagedBoard::kSlots) take(call, passage);
    ask(call, passage);
  }
  if (counts(call.access)) {
    // What end() has raised is no answer. The waiting thread finds out why there is none.
    if (!board_.answered(rank_, passage.lane, call.peer).reached(passage.number) || is_aborted())
      return State::kPending;
    call.found = board_.request(rank_, passage.lane, call.peer, passage.number).found;
    board_.passed(rank_, passage.lane, call.peer).raise(passage.number);
  } else {
    if (call.access != Access::kGet) hold(call, passage, passage.number);
    while (call.access == Access::kGet && passage.first < passage.behind) take(call, passage);
    call.held_at = passage.lane;
    call.held_until = passage.number;
    device_.raise(board_.passed(rank_, passage.lane, call.peer), passage.number, call.stream);
  }
  Lane& lane = lanes_[static_cast<std::size_t>(passage.lane)];
  lane.busy = false;
  lane.target = call.peer, lane.number = passage.number;
  call.state.reset();
  return State::kDone;
}

// Whether no rank touches the lane's slots any more.
bool StagedAccess::is_idle(const Lane& lane) const {
  const auto number = static_cast<int>(&lane - lanes_.data());
  return lane.used == 0 || board_.passed(rank_, number, lane.target).reached(lane.number);
}

// Takes the stream's own lane, an idle lane, or the lane that was used longest ago. If the lane is
// not idle, the stream first waits for the last call there. That holds for its own lane, too: a new
// stream may have the handle of one that is gone.
bool StagedAccess::take_lane(Passage& passage, Stream stream) {
  const auto rank_of = [&](const Lane& lane) {
    if (lane.used > 0 && lane.stream == stream) return 0;
    return lane.busy ? 3 : is_idle(lane) ? 1 : 2;
  };
  const auto found = std::min_element(lanes_.begin(), lanes_.end(), [&](const Lane& one, const Lane& other) {
    return std::pair(rank_of(one), one.used) < std::pair(rank_of(other), other.used);
  });
  if (found->busy) return false;
  const auto number = static_cast<int>(found - lanes_.begin());
  if (!is_idle(*found))
    device_.wait_for_flag(board_.passed(rank_, number, found->target), found->number, stream);
  found->stream = stream, found->busy = true, found->used = ++uses_;
  passage.lane = number;
  return true;
}

bool StagedAccess::has_room(const WindowCall& call, const Passage& passage) const {
  const std::uint32_t number = asked_[at(call.peer, passage.lane)].load() + 1;
  return board_.answered(rank_, passage.lane, call.peer).reached(number - StagedBoard::kRequests);
}

void StagedAccess::ask(const WindowCall& call, Passage& passage) {
  constexpr std::size_t kMost = StagedBoard::kSlotBytes;
  const std::size_t slot = passage.behind++ % StagedBoard::kSlots;
  std::atomic<std::uint32_t>& asked = asked_[at(call.peer, passage.lane)];
  Piece& piece = passage.pieces[slot] = {.number = asked.load() + 1,
                                         .begin = passage.row * call.row_bytes + passage.column,
                                         .offset = call.offset + passage.row * call.stride + passage.column,
                                         .row = std::min(call.row_bytes - passage.column, kMost)};
  if (call.row_bytes <= kMost) {
    piece.rows = std::min(call.rows - passage.row, kMost / std::max<std::size_t>(1, call.row_bytes));
    passage.row += piece.rows;
  } else if ((passage.column += piece.row) == call.row_bytes) {
    passage.column = 0;
    ++passage.row;
  }
  passage.number = piece.number;
  StagedBoard::Request& request = board_.request(rank_, passage.lane, call.peer, piece.number);
  request.asked = WindowRequest::of(call);
  request.asked.slot = 0;
  request.asked.offset = piece.offset;
  request.asked.row_bytes = piece.row;
  request.asked.rows = piece.rows;
  request.slot = slot;
  request.number = piece.number;
  bool for_sure = false;
  if (kAccesses[call.access].reads_data) {
    WindowMove job;
    job.from = static_cast<const std::byte*>(call.from) + piece.begin;
    job.to = board_.slot(rank_, passage.lane, slot);
    job.row_bytes = static_cast<std::int64_t>(piece.bytes());
    for_sure = move(job, /*to_host=*/true, call.stream);
  }
  asked.store(piece.number);
  Flag& flag = board_.asked(rank_, passage.lane, call.peer);
  if (for_sure) return device_.raise(flag, piece.number, call.stream);
  tell(device_, flag, request, call.stream);
}

bool StagedAccess::is_aborted() const {
  return std::atomic_ref(const_cast<std::uint32_t&>(*aborted_)).load() != 0;
}

// end() may have come in between.
void StagedAccess::hold(const WindowCall& call, const Passage& passage, std::uint32_t number) {
  Flag& flag = board_.answered(rank_, passage.lane, call.peer);
  device_.wait_for_flag(flag, number, call.stream);
  if (is_aborted()) flag.raise(number);
}

// The oldest piece has its answer; then its slot is free.
void StagedAccess::take(const WindowCall& call, Passage& passage) {
  const std::size_t slot = passage.first++ % StagedBoard::kSlots;
  const Piece& piece = passage.pieces[slot];
  hold(call, passage, piece.number);
  if (call.access != Access::kGet) return;
  WindowMove job;
  job.from = board_.slot(rank_, passage.lane, slot);
  job.to = static_cast<std::byte*>(call.into) + piece.begin;
  job.row_bytes = static_cast<std::int64_t>(piece.bytes());
  move(job, /*to_host=*/false, call.stream);
}

// Of what was aborted nothing is touched any more but by copy engines, which do not look.
bool StagedAccess::move(const WindowMove& job, bool to_host, Stream stream) const {
  const auto bytes = static_cast<std::size_t>(job.row_bytes);
  if (bytes >= kStagedByCopyEngine) {
    if (to_host) device_.copy_to_host(job.to, job.from, bytes, stream);
    if (!to_host) device_.copy_to_device(job.to, job.from, bytes, stream);
    return true;
  }
  WindowMove looking = job;
  looking.ended = aborted_;
  device_.move_window(looking, stream);
  return false;
}

// Raises the flag to the request's number, unless all was aborted, and with it what comes before on
// the stream.
void StagedAccess::tell(Device& device, Flag& flag, const StagedBoard::Request& request,
                        Stream stream) const {
  WindowMove job;
  job.from = &request.number;
  job.to = &flag.count;
  job.row_bytes = sizeof request.number;
  job.ended = aborted_;
  device.move_window(job, stream);
}

std::uint32_t StagedAccess::asked(int target, int lane) const {
  return std::atomic_ref(board_.asked(rank_, lane, target).count).load(std::memory_order_acquire);
}

std::uint32_t StagedAccess::passed(int target, int lane) const {
  return std::atomic_ref(board_.passed(rank_, lane, target).count).load(std::memory_order_acquire);
}

bool StagedAccess::serve() {
  const std::unique_lock lock(serving_now_, std::try_to_lock);
  if (!lock || is_aborted()) return false;
  bool moved = false;
  for (int origin = 0; origin < ranks_; ++origin) {
    for (int lane = 0; lane < StagedBoard::kLanes && origin != rank_; ++lane) {
      std::uint32_t& served = served_[at(origin, lane)];
      for (int time = 0; time < kServedAtOnce && board_.asked(origin, lane, rank_).reached(served + 1);
           ++time) {
        carry_out(origin, lane, ++served);
        moved = true;
      }
    }
  }
  return moved;
}

// A request must lie within this rank's memory, and must not be larger than a slot. A fetch_add or
// compare_swap must be of one number.
bool StagedAccess::is_right(const WindowRequest& asked, std::size_t bytes) {
  if (!asked.fits(bytes)) return false;
  if (asked.rows > 0 && asked.row_bytes > StagedBoard::kSlotBytes / asked.rows) return false;
  const auto access = static_cast<Access>(asked.access);
  const auto dtype = static_cast<DType>(asked.dtype);
  if (access == Access::kAccumulate)
    return dtype != DType::kComplex128 || static_cast<ReduceOp>(asked.op) == ReduceOp::kSum;
  if (!counts(access)) return access != Access::kSignal;
  return (dtype == DType::kInt32 || dtype == DType::kInt64) && asked.rows == 1 &&
         asked.row_bytes == size_of(dtype);
}

void StagedAccess::carry_out(int origin, int lane, std::uint32_t number) {
  StagedBoard::Request& request = board_.request(origin, lane, rank_, number);
  const WindowRequest asked = request.asked;
  const std::uint64_t slot = request.slot;
  if (!is_right(asked, own_.bytes) || slot >= StagedBoard::kSlots) {
    if (!std::exchange(has_refused_, true))
      log(LogLevel::kError, "what rank " + std::to_string(origin) +
                                " of a group asks of a window on a GPU lies outside of it; report this");
  } else {
    WindowCall call = asked.call();
    call.stream = serving_;
    call.from = call.into = board_.slot(origin, lane, slot);
    if (call.access == Access::kAccumulate) {
      enqueue_update(serving_device_, call, memory_, aborted_);
    } else if (counts(call.access)) {
      enqueue_count(serving_device_, call, memory_, &request.found, &request.counted, aborted_);
    } else if (call.bytes() > 0) {
      serving_device_.move_window(move_of(call, memory_, aborted_), serving_);
    }
  }
  tell(serving_device_, board_.answered(origin, lane, rank_), request, serving_);
}

void StagedAccess::mark(WindowCount* count, std::uint32_t* shown) {
  enqueue(only_raise(shown, count, never()));
}

void StagedAccess::enqueue(WindowMove job) {
  job.ended = never();
  const std::lock_guard lock(serving_now_);
  serving_device_.move_window(job, serving_);
}

void StagedAccess::end() {
  for (int target = 0; target < ranks_; ++target) {
    for (int lane = 0; lane < StagedBoard::kLanes; ++lane)
      board_.answered(rank_, lane, target).raise(asked_[at(target, lane)].load());
  }
}

bool StagedAccess::is_idle() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return is_idle(lane); });
}

}  // namespace altorch
