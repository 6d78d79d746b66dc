#include "engine/communicator.h"

#include <cstdio>
#include <thread>

#include "common/adaptive_wait.h"
#include "common/env.h"
#include "engine/fingerprint.h"
#include "engine/progress.h"

namespace altorch {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};
// A process that is being killed loses its memory, at which a transport fails, before its end can be seen.
constexpr std::chrono::milliseconds kDying{1000};
constexpr std::string_view kMessageRoute = "message";

// The same on all ranks, and no other group's: names alone repeat among disjoint groups.
std::string group_key(const CommunicatorSettings& settings) {
  std::uint64_t hash = 14695981039346656037u;
  for (const int rank : settings.global_ranks)
    hash = (hash ^ static_cast<std::uint64_t>(rank)) * 1099511628211u;
  return settings.name + "/" + std::to_string(hash);
}

Error lost(const Liveness::Death& death, const std::string& noticed_by = "") {
  return Error(ErrorKind::kPeerLost, "global rank " + std::to_string(death.rank) +
                                         " is lost: " + death.evidence + noticed_by +
                                         "; look for its error above, then start the job again");
}

CallNote note_of(const Operation& operation) {
  return {operation.sequence, fingerprint(operation), operation.history};
}

// Whatever is being thrown, as an error: nothing may pass through the threads that drive operations.
Error caught() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::kInternal, error.what());
  } catch (...) {
    return Error(ErrorKind::kInternal, "something that is no exception was thrown");
  }
}

std::string seconds(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(duration.count()) / 1000);
  return text;
}

}  // namespace

Communicator::Communicator(CommunicatorSettings settings, std::unique_ptr<Links> links)
    : settings_(std::move(settings)),
      links_(std::move(links)),
      rank_(links_->channel().rank()),
      size_(links_->channel().size()),
      board_(std::make_shared<StallBoard>(settings_.store, group_key(settings_), rank_, size_)),
      stall_(static_cast<std::int64_t>(1000 * numeric_setting("ALTORCH_STALL_SECONDS"))),
      collective_(*links_, routes_) {
  if (settings_.watch && size_ > 1) settings_.watch->inquiries.join(board_);
}

Communicator::~Communicator() = default;

// The engine's own tags begin at half of the tag space.
std::int64_t Communicator::max_message_tag() const { return (links_->channel().max_tag() >> 2) - 1; }

void Communicator::check_open() const {
  const std::lock_guard lock(mutex_);
  check_open_locked();
}

void Communicator::check_open_locked() const {
  if (closed_) throw *closed_;
  if (!ProgressThread::usable()) {
    throw Error(
        ErrorKind::kClosed,
        "this process was forked from the one that made the group and cannot use it; start it with the "
        "'spawn' method to communicate");
  }
}

void Communicator::run(const Operation& operation, bool& buffers_free, std::unique_lock<std::mutex>* turn) {
  buffers_free = true;
  bool idle = false;
  try {
    const std::lock_guard lock(mutex_);
    check_open_locked();
    idle = !inline_running_ && queue_.empty();
    inline_running_ |= idle;
  } catch (const Error& error) {
    throw explain(operation, error);
  }
  if (!idle) {
    auto task = std::make_shared<Task>();
    task->operation = operation;
    submit(task);
    if (turn) turn->unlock();
    wait(*task, std::chrono::milliseconds(0));
    buffers_free = task->buffers_free;
    if (task->error) throw *task->error;
    return;
  }

  if (turn) turn->unlock();
  Vigil vigil = begin_vigil();
  std::optional<Error> error;
  bool clean = true;
  try {
    start(operation);
    AdaptiveWait wait;
    while (true) {
      const State state = collective_.advance(error);
      if (state == State::kDone) break;
      if (state == State::kPending) {
        wait.pause();
        if (closing_.load(std::memory_order_relaxed)) vigil.next_look = {};
        if (wait.waited() > kLookEvery / 2) error = look_after(operation, vigil, Clock::now());
      }
      if (error) {
        clean = collective_.cancel();
        break;
      }
    }
  } catch (...) {
    error = caught();
    clean = collective_.cancel();
  }
  const auto took = Clock::now() - vigil.began;
  const std::string_view route = collective_.route().name();
  std::optional<Error> reported;
  if (error) reported = fail(operation, *error, vigil, clean);
  bool queued = false;
  {
    const std::lock_guard lock(mutex_);
    inline_running_ = false;
    queued = !queue_.empty();
  }
  if (queued) ProgressThread::instance().watch(shared_from_this(), true);
  buffers_free = clean;
  if (reported) throw *reported;
  statistics_.add(operation.kind, links_->transport(), route, payload_bytes(operation, size_), took);
}

void Communicator::submit(std::shared_ptr<Task> task) {
  try {
    task->vigil.issued = Clock::now();
    const std::lock_guard lock(mutex_);
    check_open_locked();
    queue_.push_back(task);
  } catch (const Error& error) {
    throw explain(task->operation, error);
  }
  ProgressThread::instance().watch(shared_from_this(), true);
}

void Communicator::enroll(Operation& operation) {
  const std::lock_guard lock(history_mutex_);
  operation.history = history_;
  history_ = append_call(history_, fingerprint(operation));
}

void Communicator::record(const Operation& operation) {
  if (!operation.is_message()) board_->record(note_of(operation));
}

void Communicator::start(const Operation& operation) {
  const CallNote mine = note_of(operation);
  board_->record(mine);
  collective_.start(operation, mine.fingerprint);
}

void Communicator::post(std::shared_ptr<Task> task) {
  const bool gated = task->gate.flag != nullptr;
  try {
    {
      const std::lock_guard lock(mutex_);
      check_open_locked();
      if (gated) gated_[task->operation.kind == OpKind::kSend ? 0 : 1].push_back(task);
    }
    if (!gated && begin_message(*task)) return;
  } catch (const Error& error) {
    throw not_begun(*task, error);
  }
  if (!gated) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  ProgressThread::instance().watch(shared_from_this(), gated);
}

// Unless it was only refused, something may have begun.
Error Communicator::not_begun(const Task& task, const Error& error) {
  const ErrorKind kind = error.kind();
  const bool refused =
      kind == ErrorKind::kInvalidArgument || kind == ErrorKind::kUnsupported || kind == ErrorKind::kClosed;
  return refused ? explain(task.operation, error) : fail(task.operation, error, task.vigil, true);
}

// True when the message is finished already. Throws Error when it was not posted.
bool Communicator::begin_message(Task& task) {
  const Operation& operation = task.operation;
  task.vigil = begin_vigil();
  const auto bytes = static_cast<std::size_t>(operation.count) * size_of(operation.dtype);
  Channel& channel = links_->channel();
  if (operation.kind == OpKind::kSend) {
    channel.send(operation.input, bytes, operation.root, operation.tag, task.request);
  } else {
    channel.receive(operation.output, bytes, operation.root, operation.tag, task.request);
  }
  std::optional<Error> error;
  const State state = channel.test({&task.request, 1}, error);
  if (state == State::kPending) return false;
  bool clean = true;
  std::optional<Error> reported;
  if (state == State::kFailed) {
    clean = channel.cancel({&task.request, 1});
    reported = fail(operation, *error, task.vigil, clean);
  }
  finish(task, kMessageRoute, std::move(reported), clean);
  return true;
}

bool Communicator::wait(const Task& task, std::chrono::milliseconds timeout) {
  if (task.finished()) return true;
  const ProgressThread::Helper helper;
  const auto began = Clock::now();
  AdaptiveWait wait;
  while (!task.finished()) {
    bool moved = false;
    drive(moved);
    if (moved) wait.reset();
    if (task.finished()) break;
    wait.pause();
    if (timeout.count() > 0 && Clock::now() - began > timeout) return false;
  }
  return true;
}

bool Communicator::drive(bool& moved) {
  const std::unique_lock driving(drive_mutex_, std::try_to_lock);
  if (!driving) return true;  // somebody else does
  const auto now = Clock::now();
  const bool collectives = drive_collective(now, moved);
  // Neither of the two waits for the other: a peer's send may be what lets ours go on.
  const bool sends = drive_gated(gated_[0], moved);
  const bool receives = drive_gated(gated_[1], moved);
  const bool messages = drive_messages(now, moved);
  return collectives || sends || receives || messages;
}

bool Communicator::drive_collective(Clock::time_point now, bool& moved) {
  while (true) {
    std::shared_ptr<Task> head;
    std::optional<Error> error;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return false;
      if (inline_running_) return true;  // the caller who runs it watches again when it is done
      head = queue_.front();
      if (!head_running_) {
        if (!closed_ && !head->gate.open()) return true;
        error = closed_;
        const auto issued = head->vigil.issued;
        head->vigil = begin_vigil();
        // What waits for a GPU has its time from there on.
        if (!head->gate.flag) head->vigil.issued = issued;
      }
    }
    State state = State::kPending;
    try {
      if (!head_running_ && !error) {
        head_running_ = true;
        start(head->operation);
      }
      if (!error) state = collective_.advance(error);
      if (state == State::kPending && !error) error = look_after(head->operation, head->vigil, now);
    } catch (...) {
      error = caught();
    }
    if (state == State::kPending && !error) return true;
    moved = true;
    bool clean = true;
    std::optional<Error> reported;
    if (error) {
      clean = !head_running_ || collective_.cancel();
      reported = fail(head->operation, *error, head->vigil, clean);
    }
    const std::string_view route = collective_.route().name();
    head_running_ = false;
    {
      const std::lock_guard lock(mutex_);
      queue_.pop_front();
    }
    finish(*head, route, std::move(reported), clean);
  }
}

// Begins the messages whose gates have opened, in the order of the calls: messages must not overtake.
bool Communicator::drive_gated(std::deque<std::shared_ptr<Task>>& gated, bool& moved) {
  while (true) {
    std::shared_ptr<Task> task;
    std::optional<Error> closed;
    {
      const std::lock_guard lock(mutex_);
      if (gated.empty()) return false;
      task = gated.front();
      if (!closed_ && !task->gate.open()) return true;
      gated.pop_front();
      closed = closed_;
    }
    moved = true;
    try {
      if (closed) throw *closed;
      if (begin_message(*task)) continue;
    } catch (...) {
      finish(*task, kMessageRoute, not_begun(*task, caught()), true);
      continue;
    }
    messages_.push_back(std::move(task));
  }
}

bool Communicator::drive_messages(Clock::time_point now, bool& moved) {
  {
    const std::lock_guard lock(mutex_);
    messages_.insert(messages_.end(), posted_.begin(), posted_.end());
    posted_.clear();
  }
  Channel& channel = links_->channel();
  for (std::size_t i = 0; i < messages_.size();) {
    const std::shared_ptr<Task> task = messages_[i];
    std::optional<Error> error;
    State state = State::kPending;
    try {
      state = channel.test({&task->request, 1}, error);
      if (state == State::kPending) error = look_after(task->operation, task->vigil, now);
    } catch (...) {
      error = caught();
    }
    if (state == State::kPending && !error) {
      ++i;
      continue;
    }
    moved = true;
    messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
    bool clean = true;
    std::optional<Error> reported;
    if (error) {
      clean = channel.cancel({&task->request, 1});
      reported = fail(task->operation, *error, task->vigil, clean);
    }
    finish(*task, kMessageRoute, std::move(reported), clean);
  }
  return !messages_.empty();
}

void Communicator::finish(Task& task, std::string_view route, std::optional<Error> error, bool buffers_free) {
  if (!error) {
    statistics_.add(task.operation.kind, links_->transport(), route, payload_bytes(task.operation, size_),
                    Clock::now() - task.vigil.began);
  }
  task.source = task.request.peer;
  task.error = std::move(error);
  task.buffers_free = buffers_free;
  task.finish();
}

Vigil Communicator::begin_vigil() const {
  Vigil vigil;
  vigil.issued = vigil.began = Clock::now();
  vigil.next_look = vigil.began + kLookEvery;
  return vigil;
}

std::optional<Error> Communicator::look_after(const Operation& operation, Vigil& vigil,
                                              Clock::time_point now) {
  if (closing_.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(mutex_);
    if (closed_) return closed_;
  }
  return examine(operation, vigil, now);
}

bool Communicator::is_time_to_compare(const Vigil& vigil, Clock::time_point now) const {
  return now - vigil.began > stall_ &&
         vigil.looks % static_cast<int>(std::chrono::seconds(1) / kLookEvery) == 0;
}

// The clock first: what else is asked may take its time.
std::optional<Error> Communicator::examine(const Operation& operation, Vigil& vigil, Clock::time_point now) {
  if (now < vigil.next_look) return std::nullopt;
  vigil.next_look = now + kLookEvery;
  ++vigil.looks;
  if (now - vigil.issued < operation.timeout) {
    if (auto error = look_for_dead(operation, vigil)) return error;
    if (now - vigil.began < stall_) return std::nullopt;
    if (settings_.watch) settings_.watch->inquiries.answer();
    if (!is_time_to_compare(vigil, now)) return std::nullopt;
    return operation.is_message() ? closed_by_peer(operation, vigil) : compare(operation, vigil);
  }
  std::string cause = "not done after its timeout of " + seconds(operation.timeout);
  if (operation.is_message()) {
    cause +=
        "; did the peer post the matching " + std::string(operation.kind == OpKind::kSend ? "recv" : "send");
    cause += " with the same tag?";
  } else {
    cause += ": " + board_->whereabouts(operation.sequence);
    cause += ". Find the rank that is late or took another path, or raise the timeout";
  }
  return Error(ErrorKind::kTimeout, cause);
}

std::optional<Error> Communicator::look_for_dead(const Operation& operation, Vigil& vigil) {
  if (!settings_.watch) return std::nullopt;
  std::span<const int> ranks = settings_.global_ranks;
  if (operation.is_message() && operation.root >= 0) {
    ranks = ranks.subspan(static_cast<std::size_t>(operation.root), 1);
  }
  const bool ask_store = vigil.looks % 10 == 0;
  const auto death = settings_.watch->liveness.check(ranks, ask_store || vigil.suspicion);
  const bool twice = vigil.suspicion && death;
  vigil.suspicion = death.has_value();
  return twice ? std::optional(lost(*death)) : std::nullopt;
}

// A killed peer reaches a transport as a failed system call: its words name neither the rank nor the reason.
Error Communicator::with_its_reason(const Error& cause) {
  if (cause.kind() != ErrorKind::kTransport || !settings_.watch) return cause;
  const auto began = Clock::now();
  while (true) {
    if (const auto death = settings_.watch->liveness.check(settings_.global_ranks, /*ask_store=*/true))
      return lost(*death, std::string(" (") + cause.what() + ")");
    if (Clock::now() - began > kDying) return cause;
    std::this_thread::sleep_for(kDying / 100);
  }
}

std::optional<Error> Communicator::closed_by_peer(const Operation& operation, Vigil& vigil) {
  const auto finding = board_->closed();
  if (!finding) return compare_message(operation);
  vigil.told_by_peer = true;
  return finding->gave_up;
}

// torch picks a side of the group by each rank's own tensor.
std::optional<Error> Communicator::compare_message(const Operation& operation) {
  if (operation.root < 0 || operation.root == rank_) return std::nullopt;
  const bool sends = operation.kind == OpKind::kSend, on_gpu = operation.device != kHostDevice;
  const auto other = board_->meet_message(operation.root, sends, operation.tag, on_gpu);
  if (!other || *other == on_gpu) return std::nullopt;
  return Error(ErrorKind::kMismatch,
               "rank " + std::to_string(operation.root) + " of the group has the other end " +
                   (on_gpu ? "in a CPU tensor, and this rank in a CUDA tensor"
                           : "in a CUDA tensor, and this rank in a CPU tensor") +
                   "; both ends of a message must be on the same kind of device (for object "
                   "lists: give both calls the same device)");
}

std::optional<Error> Communicator::compare(const Operation& operation, Vigil& vigil) {
  const CallNote mine = note_of(operation);
  if (!vigil.written_down) board_->publish_wait(operation.sequence);
  vigil.written_down = true;
  const auto finding = board_->compare(mine);
  if (!finding) {
    // Again and again, more and more rarely: a peer may yet come to it, and pass it.
    if (settings_.watch && board_->is_first(operation.sequence) && vigil.looks >= vigil.next_question) {
      settings_.watch->inquiries.ask(board_->group(), mine);
      vigil.next_question = 2 * vigil.looks;
    }
    return std::nullopt;
  }
  if (finding->gave_up) {
    vigil.told_by_peer = finding->closed;  // who only refused must learn that the others have given up
    return finding->gave_up;
  }
  const auto both = [&](const CallNote& theirs, const CallNote& own) {
    return "rank " + std::to_string(finding->rank) + " of the group called " +
           describe_fingerprint(theirs.fingerprint) + ", rank " + std::to_string(rank_) + " " +
           describe_fingerprint(own.fingerprint);
  };
  constexpr const char* remedy = "; all ranks must make the same calls in the same order";
  if (finding->called.fingerprint != mine.fingerprint)
    return Error(ErrorKind::kMismatch, both(finding->called, mine) + remedy);
  std::string where = "somewhere before";
  if (finding->parted_theirs) {
    where = "at #" + std::to_string(finding->parted_theirs->sequence) + ": " +
            both(*finding->parted_theirs, *finding->parted_mine);
  }
  return Error(ErrorKind::kMismatch,
               "the ranks agree about this call, but not about earlier ones. They parted " + where + remedy);
}

Error Communicator::fail(const Operation& operation, const Error& noticed, const Vigil& vigil,
                         bool buffers_free) {
  const Error cause = with_its_reason(noticed);
  if (!buffers_free) links_->mark_broken();
  close_after(operation, cause, !vigil.told_by_peer);
  return explain(operation, cause);
}

Error Communicator::give_up(const Operation& operation, const Error& cause) {
  close_after(operation, cause, /*tell=*/true);
  return explain(operation, cause);
}

// Once: what fails afterwards fails because of that.
void Communicator::close_after(const Operation& operation, const Error& cause, bool tell) {
  if (cause.kind() == ErrorKind::kClosed) return;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    failure_ = explain(operation, cause);
    closed_ = Error(ErrorKind::kClosed, "the group is closed since " + label(operation) + " failed (" +
                                            cause.what() + "); destroy it and make a new one");
  }
  closing_.store(true);
  if (tell && size_ > 1) board_->publish_closed(label(operation), cause);
}

std::optional<Error> Communicator::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_ ? failure_ : closed_;
}

Error Communicator::refuse(const Operation& operation, const Error& cause) {
  if (!operation.is_message()) {
    std::uint64_t history = 0;
    {
      const std::lock_guard lock(history_mutex_);
      history = history_ = append_call(history_, CallNote::kRefused);
    }
    board_->record({operation.sequence, CallNote::kRefused, history});
    if (size_ > 1 && !closing_.load()) board_->publish_refusal(operation.sequence, cause.what());
  }
  return explain(operation, cause);
}

std::string Communicator::label(const Operation& operation) const {
  std::string text = name_of(operation.kind);
  if (!operation.is_message()) return text + " #" + std::to_string(operation.sequence);
  text += operation.kind == OpKind::kSend ? " to " : " from ";
  text += operation.root == kAnySource ? "any rank" : "rank " + std::to_string(operation.root);
  return text + ", tag " + std::to_string(operation.tag);
}

std::string Communicator::prefix(const Operation& operation) const {
  return "altorch: group '" + settings_.name + "', rank " + std::to_string(rank_) + ": " + label(operation) +
         ": ";
}

Error Communicator::explain(const Operation& operation, const Error& cause) const {
  return cause.with_prefix(prefix(operation));
}

// What is in flight is ended by whoever drives it.
void Communicator::close(const std::string& why, bool tell) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) tell = false;
    if (!closed_) closed_ = Error(ErrorKind::kClosed, why);
  }
  closing_.store(true);
  if (tell && size_ > 1) board_->publish_closed("the group", Error(ErrorKind::kClosed, why));
}

}  // namespace altorch
