// SPDX-License-Identifier: BSD-3-Clause
#include "health/desync_board.h"

#include <cstdlib>
#include <sstream>

#include "rendezvous/poll_pause.h"

namespace altorch {
namespace {

constexpr int kMostNames = 16;              // ranks that a message names
constexpr std::chrono::seconds kToLook{5};  // for the rank that reads the keys of all ranks
constexpr std::uint64_t kMostCalls = 16;    // earlier calls in a published call

constexpr const char* kClosed = "board/closed";  // holds "<rank> <kind of error> <why>"
std::string kind_of(bool on_gpu) { return on_gpu ? "cuda/" : "cpu/"; }
std::string key_of(const CallNote& note) { return kind_of(note.on_gpu) + std::to_string(note.sequence); }
std::string wait_key(int rank, bool on_gpu) {
  return "board/waits/" + kind_of(on_gpu) + std::to_string(rank);
}
std::string first_key(const CallNote& note) { return "board/first/" + key_of(note); }
// Holds "<rank> refused <cause>" or "<rank> called <note>".
std::string answer_key(const CallNote& note) { return "board/answer/" + key_of(note); }

std::string left_key(int rank) { return "board/left/" + std::to_string(rank); }

std::string rest_of(std::istringstream& stream) {
  std::string text;
  stream >> std::ws;
  std::getline(stream, text, '\0');
  return text;
}

}  // namespace

DesyncBoard::DesyncBoard(std::shared_ptr<KeyValueStore> store, std::string group, int rank, int size)
    : store_(std::move(store)), group_(std::move(group)), rank_(rank), size_(size) {}

std::optional<std::string> DesyncBoard::note(const std::string& key) {
  try {
    return store_->try_get(key);
  } catch (const std::exception&) {
    return std::nullopt;  // the store may be gone with its host; liveness says so in better words
  }
}

bool DesyncBoard::set(const std::string& key, const std::string& value) {
  try {
    store_->set(key, value);
    return true;
  } catch (const std::exception&) {  // as above
    return false;
  }
}

void DesyncBoard::publish_wait(const CallNote& note) {
  const std::uint64_t when = waits_.fetch_add(1, std::memory_order_relaxed) + 1;
  set(wait_key(rank_, note.on_gpu), std::to_string(note.sequence) + " " + std::to_string(when));
}

void DesyncBoard::publish_refusal(const CallNote& note, const std::string& cause) {
  set(answer_key(note), std::to_string(rank_) + " refused " + cause);
}

void DesyncBoard::publish_closed(const std::string& operation, const Error& cause) {
  set(kClosed, std::to_string(rank_) + " " + std::to_string(static_cast<int>(cause.kind())) + " " +
                   operation + ": " + cause.what());
}

// c10d prints a trace when it sends to a store whose host has gone.
void DesyncBoard::publish_left(std::uint64_t finished) {
  if (store_->is_hosted()) set(left_key(rank_), std::to_string(finished));
}

std::optional<std::uint64_t> DesyncBoard::left(int peer) {
  std::uint64_t finished = 0;
  std::istringstream stream(note(left_key(peer)).value_or(""));
  return stream >> finished ? std::optional(finished) : std::nullopt;
}

void DesyncBoard::answer(const CallNote& note) {
  const auto mine = called(note.sequence, note.on_gpu);
  if (!mine || mine->agrees_with(note)) return;
  if (mine->fingerprint == CallNote::kRefused) return;  // publish_refusal() has told why
  set(answer_key(note), std::to_string(rank_) + " called " + encode(*mine));
}

std::optional<CallNote> DesyncBoard::called(std::uint64_t sequence, bool on_gpu) const {
  if (sequence == 0) return std::nullopt;  // no call has this number
  const auto& calls = calls_[on_gpu];
  const Call& call = calls[sequence % calls.size()];
  const bool before = call.sequence.load(std::memory_order_acquire) == sequence;
  const CallNote found{sequence, call.fingerprint.load(std::memory_order_acquire),
                       call.history.load(std::memory_order_acquire), on_gpu};
  const bool after = call.sequence.load(std::memory_order_acquire) == sequence;
  return before && after ? std::optional(found) : std::nullopt;
}

// The call and the calls before it: if the ranks differed earlier, they show at which call.
std::string DesyncBoard::encode(const CallNote& note) const {
  std::ostringstream text;
  text << note.sequence << ' ' << note.fingerprint << ' ' << note.history;
  for (std::uint64_t back = 1; back <= kMostCalls && back < note.sequence; ++back) {
    if (const auto earlier = called(note.sequence - back, note.on_gpu))
      text << ' ' << earlier->sequence << ' ' << earlier->fingerprint << ' ' << earlier->history;
  }
  return text.str();
}

std::optional<DesyncBoard::Finding> DesyncBoard::difference(const std::string& theirs,
                                                            const CallNote& mine) const {
  std::istringstream stream(theirs);
  Finding finding;
  CallNote& call = finding.called;
  if (!(stream >> finding.rank >> call.sequence >> call.fingerprint >> call.history)) return std::nullopt;
  if (!is_peer(finding.rank) || call.sequence != mine.sequence || call.agrees_with(mine)) return std::nullopt;
  CallNote earlier;  // the latest first: the last one that differs is the first difference
  while (stream >> earlier.sequence >> earlier.fingerprint >> earlier.history) {
    const auto own = called(earlier.sequence, mine.on_gpu);
    if (!own || own->fingerprint == earlier.fingerprint) continue;
    finding.first_difference_theirs = earlier;
    finding.first_difference_mine = own;
  }
  return finding;
}

std::optional<DesyncBoard::Finding> DesyncBoard::closed() {
  const auto text = note(kClosed);
  if (!text) return std::nullopt;
  std::istringstream stream(*text);
  Finding finding;
  int kind = 0;
  if (!(stream >> finding.rank >> kind) || !is_peer(finding.rank)) return std::nullopt;
  finding.closed = true;
  const bool is_known = kind >= 0 && kind < kErrorKindCount;
  const auto cause = is_known ? static_cast<ErrorKind>(kind) : ErrorKind::kInternal;
  finding.aborted = Error(cause == ErrorKind::kClosed ? ErrorKind::kPeerLost : cause,
                          "rank " + std::to_string(finding.rank) + " of the group aborted " +
                              rest_of(stream) + "; destroy the group and make a new one");
  return finding;
}

std::optional<DesyncBoard::Finding> DesyncBoard::compare(const CallNote& mine) {
  if (auto finding = closed()) return finding;
  if (const auto answer = note(answer_key(mine))) {
    std::istringstream stream(*answer);
    int author = -1;
    std::string what;
    stream >> author >> what;
    const std::string text = rest_of(stream);
    if (is_peer(author) && what == "refused") {
      return Finding{.rank = author,
                     .aborted = Error(ErrorKind::kMismatch, "rank " + std::to_string(author) +
                                                                " of the group aborted it: " + text)};
    }
    // A rank that agrees with the author goes on waiting, until the one that does not aborts.
    if (what == "called") {
      if (auto finding = difference(std::to_string(author) + " " + text, mine)) return finding;
    }
  }
  if (const auto first = note(first_key(mine))) {
    // If many ranks write at the same time, all but one are overwritten. A rank learns that it is
    // the first when it reads its own note.
    if (std::atoi(first->c_str()) == rank_)
      first_in_[mine.on_gpu].store(mine.sequence, std::memory_order_relaxed);
    return difference(*first, mine);
  }
  set(first_key(mine), std::to_string(rank_) + " " + encode(mine));
  return std::nullopt;
}

std::optional<bool> DesyncBoard::compare_message(int peer, bool sends, std::int64_t tag, bool on_gpu) {
  const auto key = [&](bool sender) {
    return "board/message/" + std::to_string(sends ? rank_ : peer) + "/" +
           std::to_string(sends ? peer : rank_) + "/" + std::to_string(tag) + (sender ? "/send" : "/recv");
  };
  set(key(sends), on_gpu ? "gpu" : "cpu");
  const auto other = note(key(!sends));
  return other ? std::optional(*other == "gpu") : std::nullopt;
}

// "<rank> <number> <1: of a CUDA call>" for each rank that does not wait in this call; number 0: it
// waits in none.
std::string DesyncBoard::waiting_ranks(const CallNote& note) {
  std::string seen = " ";  // a store may refuse an empty value
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;
    // A key holds the rank's last wait of its kind, which may be over: the later of the two tells
    // more.
    std::uint64_t number = 0, when = 0, other_number = 0, other_when = 0;
    std::istringstream(store_->try_get(wait_key(peer, note.on_gpu)).value_or("")) >> number >> when;
    if (number == note.sequence) continue;
    std::istringstream(store_->try_get(wait_key(peer, !note.on_gpu)).value_or("")) >> other_number >>
        other_when;
    const bool is_other = other_when > when;
    seen += std::to_string(peer) + " " + std::to_string(is_other ? other_number : number) +
            (note.on_gpu != is_other ? " 1 " : " 0 ");
  }
  return seen;
}

// All ranks reach their deadlines at the same time, so one of them looks for all.
std::optional<std::string> DesyncBoard::waiting_ranks_shared(const CallNote& note) {
  const std::string key = "board/waiting/" + key_of(note);
  if (store_->add(key + "/asked", 1) == 1) {
    std::string seen = waiting_ranks(note);
    store_->set(key, seen);
    return seen;
  }
  const auto deadline = WaitClock::now() + kToLook;
  PollPause pause(size_, deadline);
  while (WaitClock::now() < deadline) {
    if (auto seen = store_->try_get(key)) return seen;
    pause.pause();
  }
  return std::nullopt;
}

DesyncBoard::Waiting DesyncBoard::waiting(const CallNote& note) {
  std::optional<std::string> seen;
  try {
    publish_wait(note);
    seen = waiting_ranks_shared(note);
  } catch (const std::exception&) {
  }
  if (!seen) return {"the job's store does not answer, so where the other ranks are is not known", {}};
  std::vector<int> elsewhere;
  std::string behind, silent;
  int count = 0;
  std::istringstream stream(*seen);
  std::uint64_t waits_in = 0;
  bool on_gpu = false, differ = false;
  for (int peer = 0; stream >> peer >> waits_in >> on_gpu;) {
    if (!is_peer(peer) || peer >= size_) continue;
    elsewhere.push_back(peer);
    if (++count > kMostNames) continue;
    if (waits_in == 0) {
      silent += (silent.empty() ? "" : ", ") + std::to_string(peer);
      continue;
    }
    behind += (behind.empty() ? "rank " : "; rank ") + std::to_string(peer) + " waits in #" +
              std::to_string(waits_in) + (on_gpu ? " (CUDA)" : "");
    differ |= on_gpu != note.on_gpu;
  }
  if (differ) behind += " (CPU and CUDA collectives never match: if it is the same call, move its tensor)";
  if (!silent.empty())
    behind += (behind.empty() ? "" : "; ") + ("ranks not waiting in this group: " + silent);
  if (count > kMostNames) behind += " and " + std::to_string(count - kMostNames) + " more elsewhere";
  return {behind.empty() ? "every rank waits in this operation" : behind, std::move(elsewhere)};
}

}  // namespace altorch
