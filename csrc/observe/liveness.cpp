#include "observe/liveness.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sstream>

#include "common/host_namespace.h"

namespace altorch {
namespace {

std::string key_of(int rank) { return "alive/" + std::to_string(rank); }
std::string death_key(int rank) { return "dead/" + std::to_string(rank); }

}  // namespace

Liveness::Liveness(std::shared_ptr<KeyValueStore> store, int rank, int size,
                   std::chrono::milliseconds timeout)
    : store_(std::move(store)), peers_(static_cast<std::size_t>(size)) {
  const std::string home = host_namespace("pid");
  store_->set(key_of(rank), home + " " + std::to_string(getpid()));
  for (int other = 0; other < size; ++other) {
    std::istringstream entry(store_->get(key_of(other), timeout));
    Peer& peer = peers_[static_cast<std::size_t>(other)];
    std::string where;
    entry >> where >> peer.pid;
    if (other == rank || where != home) continue;
#ifdef SYS_pidfd_open
    peer.pidfd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(peer.pid), 0));
#endif
  }
}

Liveness::~Liveness() {
  for (Peer& peer : peers_) {
    if (peer.pidfd >= 0) close(peer.pidfd);
  }
}

std::optional<Liveness::Death> Liveness::check(std::span<const int> ranks, bool ask_store) {
  const std::lock_guard lock(mutex_);
  for (const int rank : ranks) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer.pidfd >= 0 && !peer.dead) {
      pollfd entry{peer.pidfd, POLLIN, 0};
      peer.dead = poll(&entry, 1, 0) == 1;
    }
    if (peer.dead) {
      if (!peer.announced) {
        peer.announced = true;
        try {
          store_->set(death_key(rank), "1");
        } catch (const std::exception&) {  // the store died with its host: local ranks know all the same
        }
      }
      return Death{rank, "process " + std::to_string(peer.pid) + " has ended"};
    }
    if (ask_store && peer.pidfd < 0) {
      try {
        if (store_->try_get(death_key(rank))) {
          peer.dead = peer.announced = true;
          return Death{rank, "a rank on its node saw process " + std::to_string(peer.pid) + " end"};
        }
      } catch (const std::exception&) {
        ask_store = false;
      }
    }
  }
  return std::nullopt;
}

}  // namespace altorch
