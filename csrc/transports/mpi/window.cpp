// SPDX-License-Identifier: BSD-3-Clause
#include "transports/mpi/window.h"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "base/leak_intentionally.h"
#include "transports/mpi/mpi_entry.h"
#include "transports/mpi/reductions.h"

namespace altorch {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // which keeps a target that carries it out awake
constexpr std::chrono::milliseconds kLastWords{200};
constexpr std::chrono::seconds kFarewell{20};

// Calls body(offset there, offset here, bytes) for every piece of every row, and `behind` after
// every kPiece of them.
template <class Body, class Behind>
void for_each_piece(const WindowCall& call, const Body& body, const Behind& behind) {
  std::size_t since = 0;
  for (std::size_t row = 0; row < call.rows; ++row) {
    for (std::size_t done = 0; done < call.row_bytes; done += kPiece) {
      const std::size_t bytes = std::min(kPiece, call.row_bytes - done);
      if (!body(static_cast<std::int64_t>(call.offset + row * call.stride + done),
                row * call.row_bytes + done, static_cast<int>(bytes)))
        return;
      since += bytes;
      if (since < kPiece) continue;
      since = 0;
      if (!behind()) return;
    }
  }
  if (since > 0) behind();
}

}  // namespace

// What MPI knows of a window: left as it is where it cannot be freed.
struct MpiWindow::Handles {
  std::unique_ptr<MpiGroup>
      group;  // of the window alone: what is collective of it comes between no other calls
  std::unique_ptr<Desk[]> desks;  // by source
  std::string name;               // of the ranks that it is of, as a group
  std::intptr_t data = 0, counts = 0;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::vector<std::int64_t> words;
  const char* function = "";
  int code = 0;
  bool unified = false;
};

struct MpiWindow::Doing : WindowCall::State {
  enum class Step { kByMessage, kData, kSignal, kOver };
  Step step = Step::kOver;
  bool flushes = false;
  std::vector<std::intptr_t> requests;  // 0 once done
  std::byte asked{};
  std::int64_t operand = 0, expected = 0, found = 0;  // of a type of the window's, from their first byte on
  std::int64_t one = 1, before = 0;
  WindowCall by_message;
  // Of the last call of MPI.
  const char* function = "";
  int code = 0;
};

// MPI has no half types, and its minimum loses NaN.
bool MpiWindow::reduces(const Mpi& mpi, DType dtype) { return counts(mpi) && is_integral(dtype); }

std::optional<std::string> MpiGroup::windows_unsupported_reason() {
  const std::string& lacks = mpi_->library().one_sided_lacks;
  if (!lacks.empty()) return mpi_->library().version + " has no " + lacks;
  if (!mpi_->usable()) return std::string("MPI is not usable: ") + mpi_->not_usable().what();
  return std::nullopt;
}

// Open MPI 4.1 tries again and again, inside MPI_Put and MPI_Rget, what fails because the target
// has gone (osc/rdma over vader, whose process_vm_writev says ESRCH). No network was there to try
// MPICH's on, and on one node messages are as fast.
std::optional<std::string> MpiGroup::windows_weakness() const {
  const char* const waits = mpi_->library().family == MpiFamily::kMpich
                                ? " may stay inside MPI_Win_flush when the target is lost in that moment"
                                : " may stay inside MPI_Put for ever when the target is lost";
  return mpi_->library().version + waits + " (ALTORCH_ROUTE=window=mpi takes it all the same)";
}

bool MpiGroup::windows_reduce(DType dtype) const { return MpiWindow::reduces(*mpi_, dtype); }

std::unique_ptr<RemoteMemory> MpiGroup::open_window(NativeWindows::Opening opening) {
  return std::make_unique<MpiWindow>(*this, std::move(opening));
}

MpiWindow::MpiWindow(MpiGroup& group, NativeWindows::Opening opening)
    : mpi_(group.owner().shared_from_this()),
      rank_(group.channel().rank()),
      size_(group.channel().size()),
      counts_(counts(*mpi_)),
      messages_(std::move(opening.messages)),
      handles_(std::make_shared<Handles>()) {
  GroupCreation creation{std::move(opening.group)};
  creation.timeout = opening.timeout;
  creation.check_peers = std::move(opening.check_peers);
  creation.what = "the opening of window " + std::to_string(opening.number);
  handles_->desks = std::make_unique<Desk[]>(static_cast<std::size_t>(size_));
  handles_->memory = opening.memory;
  handles_->name = creation.name;
  handles_->bytes = opening.registered[static_cast<std::size_t>(rank_)].bytes;
  try {
    const auto tag =
        static_cast<std::int64_t>(Fnv().add(creation.name + "/" + creation.what).value() % 32768);
    handles_->group = mpi_->create_group(group.world_ranks(), tag, creation);
    open(creation);
    try_out(opening.registered, creation);
  } catch (...) {
    if (handles_->group) handles_->group->mark_broken();
    leak_intentionally(std::make_unique<std::shared_ptr<Handles>>(handles_));
    closed_ = true;
    throw;
  }
}

MpiWindow::~MpiWindow() { MpiWindow::close(false); }

void MpiWindow::open(const GroupCreation& creation) {
  const auto refusal = std::make_shared<std::optional<Error>>();
  mpi_->run_collective(
      [handles = handles_, mpi = mpi_, size = size_, refusal] {
        const MpiEntry entry(*mpi);
        if (!entry) {
          *refusal = entry.refusal();
          return;
        }
        const std::intptr_t communicator = handles->group->communicator();
        int unified[2] = {0, 0};
        handles->function = "MPI_Win_create";
        handles->code = mpi->table().win_create(handles->memory, static_cast<std::int64_t>(handles->bytes),
                                                communicator, &handles->data, &unified[0]);
        if (handles->code != 0) return;
        handles->code =
            mpi->table().win_create(handles->desks.get(), static_cast<std::int64_t>(sizeof(Desk)) * size,
                                    communicator, &handles->counts, &unified[1]);
        handles->unified = unified[0] && unified[1];
      },
      creation);
  if (*refusal) throw **refusal;
  if (handles_->code != 0)
    throw Error(ErrorKind::kUnsupported, mpi_->describe(handles_->function, handles_->code));
  if (!handles_->unified)
    throw Error(ErrorKind::kUnsupported,
                "what others write into a window of this MPI is not in memory at once");
}

std::size_t MpiWindow::place_of(int slot) const {
  return static_cast<std::size_t>(rank_) * sizeof(Desk) +
         static_cast<std::size_t>(slot) * sizeof(std::int64_t);
}

// Tries everything that the window uses later, on the counts of the next rank, which no rank reads
// yet.
void MpiWindow::try_out(std::span<const Registered> registered, const GroupCreation& creation) {
  handles_->words = {0x5ca1ab1e + rank_, 0, 5, 0, 77, 0x5ca1ab1e + rank_ + 5, 0, 0};
  std::vector<std::int64_t>& words = handles_->words;
  const int next = (rank_ + 1) % size_;
  const auto place = static_cast<std::int64_t>(place_of(kSignalSlots + 1));
  const auto enter = [&](const char* function, const auto& call) {
    const MpiEntry entry(*mpi_);
    entry.or_throw();
    const int code = call();
    if (code != 0) throw Error(ErrorKind::kUnsupported, mpi_->describe(function, code));
  };
  const auto run = [&](const char* function, const auto& call) {
    std::intptr_t request = 0;
    enter(function, [&] { return call(&request); });
    mpi_->wait(request, function, creation);
  };
  const auto get = [&](std::int64_t& into) {
    run("MPI_Rget", [&](std::intptr_t* request) {
      return table().rget(&into, sizeof into, next, place, handles_->counts, request);
    });
  };
  const auto flush = [&] { enter("MPI_Win_flush", [&] { return table().flush(next, handles_->counts); }); };
  const auto check = [&](const char* function, std::int64_t found, std::int64_t wanted) {
    if (found != wanted)
      throw Error(ErrorKind::kUnsupported, std::string(function) + " of " + mpi_->library().version +
                                               " gives " + std::to_string(found) + " where " +
                                               std::to_string(wanted) + " is right");
  };
  enter("MPI_Put", [&] { return table().put(&words[0], sizeof words[0], next, place, handles_->counts); });
  get(words[7]);
  flush();
  get(words[1]);
  check("MPI_Put", words[1], words[0]);
  // Open MPI waits inside the first access to a rank.
  for (int rank = 0; rank < size_ && !counts_; ++rank) {
    if (registered[static_cast<std::size_t>(rank)].bytes == 0) continue;
    run("MPI_Rget",
        [&](std::intptr_t* request) { return table().rget(&words[7], 1, rank, 0, handles_->data, request); });
  }
  const auto count = [&] {
    run("MPI_Rget_accumulate", [&](std::intptr_t* request) {
      return table().rget_accumulate(&words[2], &words[3], 1, ALTORCH_MPI_INT64, ALTORCH_MPI_SUM, next, place,
                                     handles_->counts, request);
    });
    check("MPI_Rget_accumulate", words[3], words[0]);
    enter("MPI_Compare_and_swap", [&] {
      return table().compare_and_swap(&words[4], &words[5], &words[6], ALTORCH_MPI_INT64, next, place,
                                      handles_->counts);
    });
    get(words[7]);
    flush();
    check("MPI_Compare_and_swap", words[6], words[5]);
    get(words[1]);
    check("MPI_Compare_and_swap", words[1], words[4]);
  };
  if (counts_) count();
  // The others may need this rank's help until they are through.
  run("MPI_Ibarrier",
      [&](std::intptr_t* request) { return table().ibarrier(handles_->group->communicator(), request); });
}

State MpiWindow::begin(WindowCall& call, std::optional<Error>& error) {
  if (has_left(call.peer)) {
    error = window_closed_by(call.peer);
    return State::kFailed;
  }
  auto made = std::make_unique<Doing>();
  Doing& doing = *made;
  call.state = std::move(made);
  const State state = start(call, doing, error);
  return state == State::kPending ? test(call, error) : state;
}

State MpiWindow::start(WindowCall& call, Doing& doing, std::optional<Error>& error) {
  using Step = Doing::Step;
  if (is_atomic(call.access) && messages_) {
    doing.step = Step::kByMessage;
    WindowCall& other = doing.by_message;
    other.access = call.access, other.peer = call.peer, other.dtype = call.dtype, other.op = call.op;
    other.offset = call.offset, other.row_bytes = call.row_bytes, other.rows = call.rows;
    other.stride = call.stride, other.from = call.from;
    other.operand = call.operand, other.expected = call.expected;
    if (!counts_) other.slot = call.slot;
    if (messages_->begin(other, error) == State::kFailed) return State::kFailed;
    return State::kPending;
  }
  const std::lock_guard lock(mutex_);
  if (closed_) {
    error = Error(ErrorKind::kClosed, "the window is closed");
    return State::kFailed;
  }
  const MpiEntry entry(*mpi_);
  if (!entry) {
    error = entry.refusal();
    return State::kFailed;
  }
  doing.step = Step::kData;
  if (call.bytes() > 0 && call.access != Access::kSignal) begin_data(call, doing);
  if (doing.code == 0) return State::kPending;
  error = Error(ErrorKind::kTransport, mpi_->describe(doing.function, doing.code));
  return State::kFailed;
}

void MpiWindow::begin_data(WindowCall& call, Doing& doing) {
  const auto* from = static_cast<const std::byte*>(call.from);
  auto* into = static_cast<std::byte*>(call.into);
  const std::intptr_t window = handles_->data;
  const int type = mpi::kTypes[call.dtype];
  const auto note = [&](const char* function, int code) {
    doing.function = function;
    doing.code = code;
    return code == 0;
  };
  const auto narrow = [&](std::int64_t value, std::int64_t& place) {
    const auto small = static_cast<std::int32_t>(value);
    if (call.dtype == DType::kInt32)
      std::copy_n(reinterpret_cast<const char*>(&small), 4, reinterpret_cast<char*>(&place));
    else
      place = value;
  };
  const auto behind = [&] { return ask(call, doing); };
  // MPI's buffers may not overlap, and this rank's may lie in its window.
  if (call.peer == rank_ && !is_atomic(call.access)) return access_memory(call, handles_->memory);
  switch (call.access) {
    case Access::kPut:
      doing.flushes = true;
      return for_each_piece(
          call,
          [&](std::int64_t there, std::size_t here, int bytes) {
            return note("MPI_Put", table().put(from + here, bytes, call.peer, there, window));
          },
          behind);
    case Access::kGet:
      return for_each_piece(
          call,
          [&](std::int64_t there, std::size_t here, int bytes) {
            doing.requests.push_back(0);
            return note("MPI_Rget",
                        table().rget(into + here, bytes, call.peer, there, window, &doing.requests.back()));
          },
          behind);
    case Access::kAccumulate: {
      doing.flushes = true;
      const auto op = binary_op_of(call.op, call.dtype);
      const int size = static_cast<int>(size_of(call.dtype));
      return for_each_piece(
          call,
          [&](std::int64_t there, std::size_t here, int bytes) {
            return note("MPI_Accumulate", table().accumulate(from + here, bytes / size, type,
                                                             mpi::kOperators[*op], call.peer, there, window));
          },
          behind);
    }
    case Access::kFetchAdd:
      narrow(call.operand, doing.operand);
      doing.requests.push_back(0);
      if (note("MPI_Rget_accumulate",
               table().rget_accumulate(&doing.operand, &doing.found, 1, type, ALTORCH_MPI_SUM, call.peer,
                                       static_cast<std::int64_t>(call.offset), window,
                                       &doing.requests.back())))
        behind();
      return;
    case Access::kCompareSwap:
      doing.flushes = true;
      narrow(call.operand, doing.operand);
      narrow(call.expected, doing.expected);
      if (note("MPI_Compare_and_swap",
               table().compare_and_swap(&doing.operand, &doing.expected, &doing.found, type, call.peer,
                                        static_cast<std::int64_t>(call.offset), window)))
        behind();
      return;
    case Access::kSignal:
      return;
  }
}

// Asks the target for an answer. If counts_, it adds 1 to a count of the target that all ranks
// share. Otherwise it raises no count and reads one byte, because Open MPI's own atomics wait
// inside MPI.
bool MpiWindow::ask(const WindowCall& call, Doing& doing) {
  doing.requests.push_back(0);
  std::intptr_t& request = doing.requests.back();
  if (counts_) {
    doing.function = "MPI_Rget_accumulate";
    doing.code =
        table().rget_accumulate(&doing.one, &doing.before, 1, ALTORCH_MPI_INT64, ALTORCH_MPI_SUM, call.peer,
                                static_cast<std::int64_t>(offsetof(Desk, asked)), handles_->counts, &request);
  } else {
    doing.function = "MPI_Rget";
    doing.code = table().rget(&doing.asked, 1, call.peer, static_cast<std::int64_t>(call.offset),
                              handles_->data, &request);
  }
  return doing.code == 0;
}

void MpiWindow::begin_signal(const WindowCall& call, Doing& doing) {
  doing.requests.assign(1, 0);
  doing.function = "MPI_Rget_accumulate";
  doing.code = table().rget_accumulate(&doing.one, &doing.before, 1, ALTORCH_MPI_INT64, ALTORCH_MPI_SUM,
                                       call.peer, static_cast<std::int64_t>(place_of(call.slot)),
                                       handles_->counts, &doing.requests[0]);
}

State MpiWindow::test(WindowCall& call, std::optional<Error>& error) {
  auto& doing = static_cast<Doing&>(*call.state);
  if (doing.step == Doing::Step::kByMessage && doing.by_message.state) {
    const State state = messages_->test(doing.by_message, error);
    if (state != State::kDone) return state;
  }
  if (doing.step == Doing::Step::kByMessage) call.found = doing.by_message.found;
  if (doing.by_message.slot != kNoSlot) {
    call.state.reset();
    return State::kDone;
  }
  const bool left = has_left(call.peer);  // first: what it did last comes before
  std::unique_lock lock(mutex_);
  if (closed_) {
    error = Error(ErrorKind::kClosed, "the window is closed");
    return State::kFailed;
  }
  State state = State::kPending;
  for (int poll = 0; poll < kPollsPerTest && state == State::kPending; ++poll) {
    const MpiEntry entry(*mpi_);
    if (!entry) {
      error = entry.refusal();
      return State::kFailed;
    }
    state = move_on(call, doing, error);
  }
  if (state == State::kFailed) return state;
  if (state == State::kDone) {
    lock.unlock();
    if (!counts_ && call.slot != kNoSlot) return signal_by_message(call, doing, error);
    call.state.reset();
    return state;
  }
  if (!left) return State::kPending;
  error = window_left_by(call.peer);
  return State::kFailed;
}

State MpiWindow::signal_by_message(WindowCall& call, Doing& doing, std::optional<Error>& error) {
  doing.step = Doing::Step::kSignal;
  doing.by_message = WindowCall();
  doing.by_message.access = Access::kSignal;
  doing.by_message.peer = call.peer;
  doing.by_message.slot = call.slot;
  const State state = messages_->begin(doing.by_message, error);
  if (state == State::kDone) call.state.reset();
  return state;
}

// Under the lock, and in MPI.
State MpiWindow::move_on(WindowCall& call, Doing& doing, std::optional<Error>& error) {
  using Step = Doing::Step;
  while (true) {
    const State state = look(doing, error);
    if (state != State::kDone) return state;
    if (doing.step == Step::kData && doing.flushes) {
      doing.function = "MPI_Win_flush";
      doing.code = table().flush(call.peer, handles_->data);
    }
    if (doing.step == Step::kData &&
        (call.access == Access::kFetchAdd || call.access == Access::kCompareSwap)) {
      std::int32_t small = 0;
      std::copy_n(reinterpret_cast<const char*>(&doing.found), 4, reinterpret_cast<char*>(&small));
      call.found = call.dtype == DType::kInt32 ? small : doing.found;
    }
    if (doing.step == Step::kSignal || call.slot == kNoSlot || !counts_) {
      doing.step = Step::kOver;
    } else if (doing.code == 0) {
      doing.step = Step::kSignal;
      begin_signal(call, doing);
    }
    if (doing.code != 0) {
      error = Error(ErrorKind::kTransport, mpi_->describe(doing.function, doing.code));
      return State::kFailed;
    }
    if (doing.step == Step::kOver) return State::kDone;
  }
}

State MpiWindow::look(Doing& doing, std::optional<Error>& error) {
  for (std::intptr_t& request : doing.requests) {
    if (request == 0) continue;
    AltorchMpiTest result = {};
    const int code = table().test(&request, &result);
    if (code != 0) {
      error = Error(ErrorKind::kTransport, mpi_->describe(doing.function, code));
      return State::kFailed;
    }
    if (!result.done) return State::kPending;
  }
  doing.requests.clear();
  return State::kDone;
}

// What MPI has begun it cannot withdraw.
bool MpiWindow::cancel(WindowCall& call) {
  if (!call.state) return true;
  auto& doing = static_cast<Doing&>(*call.state);
  if (doing.by_message.state) return messages_->cancel(doing.by_message);
  const auto is_over = [](std::intptr_t request) { return request == 0; };
  if (!doing.flushes && std::all_of(doing.requests.begin(), doing.requests.end(), is_over)) return true;
  leak_intentionally(std::move(call.state));
  return false;
}

std::uint64_t MpiWindow::signals(int source, int slot) const {
  if (!counts_) return messages_->signals(source, slot);
  const std::int64_t& place =
      handles_->desks[static_cast<std::size_t>(source)].signals[static_cast<std::size_t>(slot)];
  const std::int64_t count = __atomic_load_n(&place, __ATOMIC_ACQUIRE);
  if (count != 0) sync();
  return static_cast<std::uint64_t>(count);
}

// As MPI wants it before one reads what a window was given; where it is unified it costs a fence.
void MpiWindow::sync() const { std::atomic_thread_fence(std::memory_order_seq_cst); }

bool MpiWindow::has_left(int rank) const {
  if (!counts_) return messages_->has_left(rank);
  return __atomic_load_n(&handles_->desks[static_cast<std::size_t>(rank)].left, __ATOMIC_ACQUIRE) != 0;
}

// MPI carries out what others ask where it has not its own thread for that, whenever it is called.
bool MpiWindow::serve() {
  const bool moved = messages_ && messages_->serve();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || closed_) return moved;
  const MpiEntry entry(*mpi_);
  if (!entry) return moved;
  int found = 0, source = 0;
  table().iprobe_any(-1, handles_->group->communicator(), &found, &source);
  table().win_sync(handles_->data);
  const std::int64_t asked = __atomic_load_n(&handles_->desks[0].asked, __ATOMIC_ACQUIRE);
  return std::exchange(seen_, asked) != asked || moved;
}

// Tells all peers that this rank is gone: a peer that waits for it, or asks later, then gets an
// error. The memory stays.
void MpiWindow::take_leave() {
  std::vector<std::intptr_t> requests(static_cast<std::size_t>(size_));
  handles_->words.assign(static_cast<std::size_t>(size_) + 1, 1);
  const auto until = std::chrono::steady_clock::now() + kLastWords;
  for (int rank = 0; rank < size_; ++rank) {
    const MpiEntry entry(*mpi_);
    if (!entry) return;
    const auto at = static_cast<std::size_t>(rank);
    if (rank == rank_ || __atomic_load_n(&handles_->desks[at].left, __ATOMIC_ACQUIRE) != 0) continue;
    if (table().rget_accumulate(&handles_->words.back(), &handles_->words[at], 1, ALTORCH_MPI_INT64,
                                ALTORCH_MPI_SUM, rank, static_cast<std::int64_t>(place_of(kSignalSlots)),
                                handles_->counts, &requests[at]) != 0)
      requests[at] = 0;
  }
  bool pending = true;
  while (pending && std::chrono::steady_clock::now() < until) {
    pending = false;
    {
      const MpiEntry entry(*mpi_);
      if (!entry) return;
      for (std::intptr_t& request : requests) {
        AltorchMpiTest result = {};
        if (request != 0) table().test(&request, &result);
        pending |= request != 0;
      }
    }
    if (pending) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

bool MpiWindow::close(bool agreed) {
  const std::lock_guard lock(mutex_);
  if (closed_) return free_;
  closed_ = true;
  if (messages_) messages_->close(agreed);
  if (agreed) {
    try {
      GroupCreation creation{handles_->name};
      creation.what = "the release of a window";
      creation.timeout = kFarewell;
      mpi_->run_collective(
          [handles = handles_, mpi = mpi_] {
            const MpiEntry entry(*mpi);
            if (!entry) return;
            handles->code = mpi->table().win_free(&handles->data);
            if (handles->code == 0) handles->code = mpi->table().win_free(&handles->counts);
          },
          creation);
      free_ = handles_->data == 0 && handles_->counts == 0 && handles_->code == 0;
      if (free_) handles_->group.reset();
    } catch (const Error&) {  // MPI is held up, and says why
    }
  } else if (counts_) {
    take_leave();
  }
  if (!free_) {
    if (handles_->group) handles_->group->mark_tainted();
    leak_intentionally(std::make_unique<std::shared_ptr<Handles>>(handles_));
  }
  return free_;
}

}  // namespace altorch
