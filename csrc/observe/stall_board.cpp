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

}  // namespace

StallBoard::StallBoard(std::shared_ptr<KeyValueStore> store, std::string prefix, int rank, int size)
    : store_(std::move(store)), prefix_(std::move(prefix)), rank_(rank), size_(size) {}

std::string StallBoard::wait_key(int rank) const { return prefix_ + "/waits/" + std::to_string(rank); }
std::string StallBoard::failure_key(std::uint64_t sequence) const {
  return prefix_ + "/failed/" + std::to_string(sequence);
}

std::optional<std::string> StallBoard::note(const std::string& key) {
  try {
    return store_->try_get(key);
  } catch (const std::exception&) {
    return std::nullopt;  // the store may be gone with its host; liveness says so in better words
  }
}

void StallBoard::publish_wait(std::uint64_t sequence, std::uint64_t fingerprint) {
  try {
    store_->set(wait_key(rank_), std::to_string(sequence) + " " + std::to_string(fingerprint));
  } catch (const std::exception&) {
  }
}

void StallBoard::publish_failure(std::uint64_t sequence, const std::string& cause) {
  try {
    store_->set(failure_key(sequence), std::to_string(rank_) + " " + cause);
  } catch (const std::exception&) {
  }
}

std::optional<StallBoard::Finding> StallBoard::compare(std::uint64_t sequence, std::uint64_t fingerprint) {
  if (const auto failure = note(failure_key(sequence))) {
    const auto space = failure->find(' ');
    const int author = std::stoi(failure->substr(0, space));
    if (author != rank_) return Finding{author, failure->substr(space + 1), 0};
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
