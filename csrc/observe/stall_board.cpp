#include "observe/stall_board.h"

#include <sstream>

namespace altorch {
namespace {

constexpr int kMostPeers = 128;  // notes read per look; a larger group still finds failures

struct WaitNote {
  std::uint64_t sequence = 0, fingerprint = 0;
};

WaitNote parse(const std::string& note) {
  WaitNote parsed;
  std::istringstream stream(note);
  stream >> parsed.sequence >> parsed.fingerprint;
  return parsed;
}

std::string wait_key(int rank) { return "board/waits/" + std::to_string(rank); }
// Holds "<rank> failed <cause>" or "<rank> called <fingerprint>".
std::string verdict_key(std::uint64_t sequence) { return "board/verdict/" + std::to_string(sequence); }

}  // namespace

StallBoard::StallBoard(std::shared_ptr<KeyValueStore> store, std::string group, int rank, int size)
    : store_(std::move(store)), group_(std::move(group)), rank_(rank), size_(size) {}

std::optional<std::string> StallBoard::note(const std::string& key) {
  try {
    return store_->try_get(key);
  } catch (const std::exception&) {
    return std::nullopt;  // the store may be gone with its host; liveness says so in better words
  }
}

void StallBoard::set(const std::string& key, const std::string& value) {
  try {
    store_->set(key, value);
  } catch (const std::exception&) {  // as above
  }
}

void StallBoard::publish_wait(std::uint64_t sequence, std::uint64_t fingerprint) {
  set(wait_key(rank_), std::to_string(sequence) + " " + std::to_string(fingerprint));
}

void StallBoard::publish_failure(std::uint64_t sequence, const std::string& cause) {
  set(verdict_key(sequence), std::to_string(rank_) + " failed " + cause);
}

void StallBoard::answer(std::uint64_t sequence, std::uint64_t fingerprint) {
  const auto mine = called(sequence);
  if (!mine || *mine == fingerprint) return;
  set(verdict_key(sequence), std::to_string(rank_) + " called " + std::to_string(*mine));
}

std::optional<std::uint64_t> StallBoard::called(std::uint64_t sequence) const {
  if (sequence == 0) return std::nullopt;  // of no call
  const Call& call = calls_[sequence % calls_.size()];
  const bool before = call.sequence.load(std::memory_order_acquire) == sequence;
  const std::uint64_t fingerprint = call.fingerprint.load(std::memory_order_acquire);
  const bool after = call.sequence.load(std::memory_order_acquire) == sequence;
  return before && after ? std::optional(fingerprint) : std::nullopt;
}

std::optional<StallBoard::Finding> StallBoard::compare(std::uint64_t sequence, std::uint64_t fingerprint) {
  if (const auto verdict = note(verdict_key(sequence))) {
    std::istringstream stream(*verdict);
    int author = -1;
    std::string what, text;
    stream >> author >> what >> std::ws;
    std::getline(stream, text, '\0');
    if (author != rank_ && what == "failed") return Finding{author, text, 0};
    // A rank that agrees with the author goes on waiting, until the one that does not gives up.
    if (author != rank_ && what == "called") {
      const std::uint64_t theirs = std::stoull(text);
      if (theirs != fingerprint) return Finding{author, std::nullopt, theirs};
    }
  }
  const int peers = size_ < kMostPeers ? size_ : kMostPeers;
  for (int step = 1; step < peers; ++step) {
    const int peer = (rank_ + step) % size_;
    const auto text = note(wait_key(peer));
    if (!text) continue;
    const WaitNote theirs = parse(*text);
    if (theirs.sequence == sequence && theirs.fingerprint != fingerprint) {
      return Finding{peer, std::nullopt, theirs.fingerprint};
    }
  }
  return std::nullopt;
}

std::string StallBoard::whereabouts(std::uint64_t sequence) {
  std::string behind, silent;
  const int peers = size_ < kMostPeers ? size_ : kMostPeers;
  for (int step = 1; step < peers; ++step) {
    const int peer = (rank_ + step) % size_;
    const auto text = note(wait_key(peer));
    if (!text) {
      silent += (silent.empty() ? "" : ", ") + std::to_string(peer);
    } else if (const auto theirs = parse(*text); theirs.sequence != sequence) {
      behind += "rank " + std::to_string(peer) + " waits in #" + std::to_string(theirs.sequence) + "; ";
    }
  }
  if (!silent.empty()) behind += "ranks not waiting in this group: " + silent;
  return behind.empty() ? "every rank waits in this operation" : behind;
}

}  // namespace altorch
