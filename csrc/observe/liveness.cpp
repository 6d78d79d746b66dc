#include "observe/liveness.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace altorch {
namespace {

constexpr const char* kDeaths = "deaths";
std::string death_key(std::int64_t number) { return "death/" + std::to_string(number); }

}  // namespace

Liveness::Liveness(std::shared_ptr<KeyValueStore> store, int rank, const std::map<int, ProcessCard>& members)
    : store_(std::move(store)) {
  const std::string home = ProcessCard::own().home;
  for (const auto& [other, card] : members) {
    Peer& peer = peers_[other];
    peer.pid = card.pid;
    has_far_peers_ |= card.home != home;
    if (other == rank || card.home != home) continue;
#ifdef SYS_pidfd_open
    peer.pidfd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(peer.pid), 0));
#endif
  }
}

Liveness::~Liveness() {
  for (auto& [rank, peer] : peers_) {
    if (peer.pidfd >= 0) close(peer.pidfd);
  }
}

// Neighbours of the dead one tell it once each; whoever hears it twice is none the worse.
void Liveness::tell(int rank) {
  if (!has_far_peers_) return;
  try {
    store_->set(death_key(store_->add(kDeaths, 1)), std::to_string(rank));
  } catch (const std::exception&) {  // the store died with its host: local ranks know all the same
  }
}

void Liveness::hear() {
  try {
    const auto count = store_->try_get(kDeaths);
    const std::int64_t deaths = count ? std::stoll(*count) : 0;
    while (heard_ < deaths) {
      const auto rank = store_->try_get(death_key(heard_ + 1));
      if (!rank) return;  // counted, and not written yet
      ++heard_;
      const auto peer = peers_.find(std::stoi(*rank));
      if (peer == peers_.end() || !peer->second.evidence.empty()) continue;
      peer->second.evidence = "a rank on its node saw process " + std::to_string(peer->second.pid) + " end";
    }
  } catch (const std::exception&) {
  }
}

std::optional<Liveness::Death> Liveness::check(std::span<const int> ranks, bool ask_store) {
  const std::lock_guard lock(mutex_);
  if (ask_store && has_far_peers_) hear();
  for (const int rank : ranks) {
    const auto found = peers_.find(rank);
    if (found == peers_.end()) continue;
    Peer& peer = found->second;
    if (peer.pidfd >= 0 && peer.evidence.empty()) {
      pollfd entry{peer.pidfd, POLLIN, 0};
      if (poll(&entry, 1, 0) == 1) {
        peer.evidence = "process " + std::to_string(peer.pid) + " has ended";
        tell(rank);
      }
    }
    if (!peer.evidence.empty()) return Death{rank, peer.evidence};
  }
  return std::nullopt;
}

}  // namespace altorch
