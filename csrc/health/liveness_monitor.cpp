// SPDX-License-Identifier: BSD-3-Clause
#include "health/liveness_monitor.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/log.h"
#include "platform/close_on_fork.h"

namespace altorch {
namespace {

constexpr std::size_t kMostAsked = 64;

int open_pidfd(long pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
#else
  static_cast<void>(pid);
  errno = ENOSYS;
  return -1;
#endif
}

}  // namespace

LivenessMonitor::LivenessMonitor(LivenessSettings settings)
    : settings_(std::move(settings)),
      process_(getpid()),
      node_(settings_.members.at(settings_.rank).node),
      links_(settings_),
      events_(settings_),
      told_(settings_.retrying ? settings_.retrying : settings_.store),
      heard_(settings_.store),
      wake_(has_peers() ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1) {
  if (wake_ >= 0) close_on_fork(wake_);
  leader_ = std::find_if(settings_.members.begin(), settings_.members.end(), [&](const auto& each) {
              return each.second.node == node_;
            })->first;
  watch_neighbours();
}

LivenessMonitor::~LivenessMonitor() {
  for (const Watched& each : watched_) close_registered(each.pidfd);
  if (wake_ >= 0) close_registered(wake_);
}

void LivenessMonitor::watch_neighbours() {
  int unwatched = 0, reason = 0;
  for (const auto& [rank, peer] : settings_.members) {
    has_far_members_ |= peer.node != node_;
    if (rank == settings_.rank || peer.node != node_) continue;
    const int pidfd = open_pidfd(peer.pid);
    if (pidfd < 0 && errno == ESRCH) {
      mark(rank, has_ended(rank));
      ended_before_.push_back(rank);
    } else if (pidfd < 0) {
      ++unwatched;
      reason = errno;
    }
    if (pidfd < 0) continue;
    close_on_fork(pidfd);
    watched_.push_back({rank, pidfd});
  }
  if (unwatched == 0) return;
  log(LogLevel::kWarning, std::to_string(unwatched) +
                              " of the processes of this node cannot be watched (pidfd_open: " +
                              std::strerror(reason) + "): if one dies, its peers wait until their timeout");
}

std::string LivenessMonitor::has_ended(int rank) const {
  return "process " + std::to_string(settings_.members.at(rank).pid) + " has ended";
}

void LivenessMonitor::mark(int rank, const std::string& evidence) {
  const std::lock_guard lock(mutex_);
  if (deaths_.emplace(rank, evidence).second) ++count_;
}

// Each neighbour of a dead process reports the death once. A duplicate report does no harm. The
// store may have died with the rank.
void LivenessMonitor::tell(std::span<const int> ranks) {
  for (const int rank : ranks) {
    events_.tell(rank);
    links_.tell(rank);
  }
  if (!has_far_members_) return;
  for (const int rank : ranks) told_.add(rank, noticed_);
}

void LivenessMonitor::finish_look(std::int64_t asked) {
  const std::lock_guard lock(mutex_);
  looks_done_ = asked;
  has_looked_.notify_all();
}

void LivenessMonitor::wait_until_reported(std::chrono::milliseconds timeout) {
  if (!has_far_members_) return;
  const std::int64_t asked = ++looks_asked_;
  wake();
  std::unique_lock lock(mutex_);
  has_looked_.wait_for(lock, timeout, [&] { return looks_done_ >= asked; });
}

void LivenessMonitor::hear_news() {
  const NodeEvents::Received received = events_.receive();
  for (const int rank : received.deaths)
    mark(rank, "a neighbour no longer sees process " + std::to_string(settings_.members.at(rank).pid));
  for (const LateQuestion& question : received.questions) pass_on(question);
}

void LivenessMonitor::hear_links() {
  const LinkNews news = links_.take_news();
  for (const int rank : news.deaths) {
    mark(rank, "another node no longer sees process " + std::to_string(settings_.members.at(rank).pid));
    events_.tell(rank);
  }
  for (const LateQuestion& question : news.questions) pass_on(question);
}

void LivenessMonitor::ask(const LateQuestion& question) {
  {
    const std::lock_guard lock(mutex_);
    if (asked_.size() < kMostAsked) asked_.push_back(question);
  }
  wake();
}

void LivenessMonitor::pass_on_what_was_asked() {
  std::uint64_t times = 0;
  if (read(wake_, &times, sizeof times) < 0) return;
  std::vector<LateQuestion> asked;
  {
    const std::lock_guard lock(mutex_);
    asked = std::exchange(asked_, {});
  }
  for (const LateQuestion& question : asked) pass_on(question);
}

// To the leader of this node, on to the job's coordinator, and on to the leader of that rank's
// node.
void LivenessMonitor::pass_on(const LateQuestion& question) {
  const auto peer = settings_.members.find(question.rank);
  if (peer == settings_.members.end()) return;
  if (settings_.rank != leader_)
    events_.pass_on(question, leader_);
  else if (peer->second.node != node_)
    links_.pass_on(question);
  else if (settings_.asked)
    settings_.asked(question, peer->second.pid);
}

void LivenessMonitor::hear() {
  const std::lock_guard hearing(hearing_);
  const std::vector<int> news = heard_.take_new();
  const std::lock_guard lock(mutex_);
  for (const int rank : news) {
    const auto peer = settings_.members.find(rank);
    if (peer == settings_.members.end()) continue;
    const std::string evidence = "another rank no longer sees process " + std::to_string(peer->second.pid);
    if (deaths_.emplace(rank, evidence).second) ++count_;
  }
}

std::optional<Liveness::Death> LivenessMonitor::check(std::span<const int> ranks, bool ask_store) {
  if (ask_store && has_far_members_) hear();
  if (!has_deaths()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  for (const int rank : ranks) {
    if (const auto death = deaths_.find(rank); death != deaths_.end())
      return Liveness::Death{rank, death->second, settings_.members.at(rank).node != node_};
  }
  return std::nullopt;
}

std::string LivenessMonitor::lost() const {
  const std::lock_guard lock(mutex_);
  const auto& [rank, evidence] = *deaths_.begin();
  return "global rank " + std::to_string(rank) + " was lost (" + evidence + ")";
}

bool LivenessMonitor::is_dead(int job_rank) const {
  if (!has_deaths() || getpid() != process_) return false;
  const std::lock_guard lock(mutex_);
  return deaths_.contains(job_rank);
}

std::map<int, std::string> LivenessMonitor::deaths() const {
  const std::lock_guard lock(mutex_);
  return deaths_;
}

void LivenessMonitor::run() {
  // Even if stop() was called meanwhile: check() may have returned these deaths, and no other rank
  // may know of them.
  noticed_ = std::chrono::steady_clock::now();
  tell(std::exchange(ended_before_, {}));
  links_.open();
  while (!stopping_) {
    const std::int64_t asked = looks_asked_;
    std::vector<pollfd> entries{{wake_, POLLIN, 0}};
    for (const Watched& each : watched_) entries.push_back({each.pidfd, POLLIN, 0});
    const std::size_t own = entries.size();
    links_.add_to(entries);
    const std::size_t all_links = entries.size() - own;
    entries.push_back({events_.socket(), POLLIN, 0});  // poll() passes over a negative one
    // Only this thread changes looks_done_.
    int timeout_ms = asked > looks_done_ ? 0 : links_.poll_timeout_ms();
    if (has_deaths()) {
      const auto longest = static_cast<int>(StuckCalls::kBetweenLooks.count());
      if (timeout_ms < 0 || timeout_ms > longest) timeout_ms = longest;
      if (stuck_calls_.look(*this)) end_stuck_process(settings_.rank, lost());
    }
    if (poll(entries.data(), entries.size(), timeout_ms) < 0) continue;
    if (stopping_) break;
    noticed_ = std::chrono::steady_clock::now();
    std::vector<int> died;  // all are marked before the first is told, which takes a while
    for (std::size_t i = own - 1; i >= 1; --i) {
      if (entries[i].revents == 0) continue;
      const Watched ended = watched_[i - 1];
      watched_.erase(watched_.begin() + static_cast<std::ptrdiff_t>(i - 1));
      close_registered(ended.pidfd);
      mark(ended.rank, has_ended(ended.rank));
      died.push_back(ended.rank);
    }
    for (const auto& [rank, evidence] : links_.look(std::span(entries).subspan(own, all_links))) {
      mark(rank, evidence);
      died.push_back(rank);
    }
    hear_links();
    tell(died);
    // When the links were looked at: what is sent over a broken one takes the reason away.
    if (entries.back().revents != 0) hear_news();
    if (entries.front().revents != 0) pass_on_what_was_asked();
    finish_look(asked);
  }
  links_.close_all();
  finish_look(std::numeric_limits<std::int64_t>::max());
}

void LivenessMonitor::stop() {
  stopping_ = true;
  wake();
}

void LivenessMonitor::wake() {
  const std::uint64_t one = 1;
  if (write(wake_, &one, sizeof one) < 0) {
    // It is awake already.
  }
}

}  // namespace altorch
