// SPDX-License-Identifier: BSD-3-Clause
#include "health/node_links.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "base/random_name.h"
#include "health/sockets.h"
#include "platform/close_on_fork.h"

namespace altorch {
namespace {

constexpr const char* kCoordinator = "coordinator";  // a CoordinatorPlace: "<port> <token> <address>"
constexpr std::size_t kLongestAddress = 255;
constexpr int kTokenDigits = 32, kRankDigits = 8;
constexpr std::size_t kGreeting = kTokenDigits + kRankDigits;
// Pauses between tries to connect. No rank notices the death of a leader that is not connected, so
// the first tries are quick.
constexpr std::chrono::milliseconds kFirstPause{5}, kLongestPause{500};
constexpr std::chrono::seconds kTryFor{60}, kGreetWithin{10};
constexpr std::size_t kMostStrangers = 64, kMostQuestions = 64;
constexpr char kAccepted = '+';
constexpr int kMostRefusals = 10;  // two seconds in which nothing listens: the coordinator is gone, not busy
constexpr int kMostFailures = 7;   // of the store, one after another, in half a second, before it is gone

KeyValueStore& store_of(const LivenessSettings& settings) {
  return settings.retrying ? *settings.retrying : *settings.store;
}

std::string greeting(const std::string& token, int rank) {
  const std::string digits = std::to_string(rank);
  return token + std::string(kRankDigits - std::min<std::size_t>(digits.size(), kRankDigits), '0') + digits;
}

}  // namespace

std::optional<CoordinatorPlace> coordinator_place(const std::string& text) {
  CoordinatorPlace place;
  std::istringstream stream(text);
  if (!(stream >> place.port >> place.token)) return std::nullopt;
  stream >> place.address;
  const bool is_one = place.port > 0 && place.port < 65536 && place.token.size() == kTokenDigits &&
                      place.address.size() <= kLongestAddress;
  return is_one ? std::optional(std::move(place)) : std::nullopt;
}

NodeLinks::NodeLinks(const LivenessSettings& settings)
    : settings_(settings), coordinator_(settings.members.begin()->first) {
  std::set<std::string> nodes{settings.members.at(coordinator_).node};
  for (const auto& [rank, peer] : settings.members) {
    if (nodes.insert(peer.node).second) leaders_.push_back(rank);
  }
  connects_ = std::find(leaders_.begin(), leaders_.end(), settings.rank) != leaders_.end();
}

NodeLinks::~NodeLinks() { close_all(); }

void NodeLinks::open() noexcept {
  if (connects_) {
    next_try_ = Clock::now();
    last_try_ = next_try_ + kTryFor;
    pause_ = kFirstPause;
  }
  if (leaders_.empty() || settings_.rank != coordinator_) return;
  try {
    // Only ranks of this host can use a loopback address.
    const std::string boot = settings_.members.at(coordinator_).boot();
    const bool one_host = std::all_of(leaders_.begin(), leaders_.end(),
                                      [&](int rank) { return settings_.members.at(rank).boot() == boot; });
    const bool serves = one_host || !is_loopback(settings_.address);
    const auto [socket, port] = listen_on(serves ? settings_.address : "");
    listener_ = socket;
    close_on_fork(listener_);
    token_ = random_name(kTokenDigits);
    store_of(settings_).set(kCoordinator,
                            std::to_string(port) + " " + token_ + " " + (serves ? settings_.address : ""));
  } catch (const std::exception& error) {
    log(LogLevel::kInfo, std::string("deaths on other nodes may be noticed late: ") + error.what());
  }
}

void NodeLinks::add_to(std::vector<pollfd>& entries) const {
  for (const Link& link : links_) entries.push_back({link.socket, POLLIN, 0});
  if (listener_ >= 0) entries.push_back({listener_, POLLIN, 0});
}

int NodeLinks::poll_timeout_ms() const {
  const bool strangers = std::any_of(links_.begin(), links_.end(), [](const Link& l) { return l.rank < 0; });
  if (strangers) return 1000;
  return connects_ && next_try_ != Clock::time_point{} ? static_cast<int>(pause_.count()) : -1;
}

NodeLinks::Deaths NodeLinks::look(std::span<const pollfd> entries) noexcept {
  Deaths deaths;
  try {
    const bool called = listener_ >= 0 && !entries.empty() && entries.back().revents != 0;
    for (std::size_t i = links_.size(); i-- > 0;) {
      const bool over = entries[i].revents != 0 &&
                        is_over(links_[i], deaths);  // before the timeout: the greeting may have arrived
      const bool late = links_[i].rank < 0 && Clock::now() - links_[i].since > kGreetWithin;
      if (!over && !late) continue;
      close_registered(links_[i].socket);
      links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (called) accept_all();
    if (next_try_ != Clock::time_point{} && Clock::now() >= next_try_) connect_to_coordinator(deaths);
  } catch (const std::exception& error) {
    log(LogLevel::kInfo, std::string("watching other nodes: ") + error.what());
  }
  return deaths;
}

void NodeLinks::accept_all() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) return;
    const auto strangers =
        std::count_if(links_.begin(), links_.end(), [](const Link& link) { return link.rank < 0; });
    if (static_cast<std::size_t>(strangers) >= kMostStrangers + leaders_.size()) {
      close_socket(socket);
      continue;
    }
    close_on_fork(socket);
    keep_alive(socket);
    links_.push_back({socket, -1, "", Clock::now()});
  }
}

void NodeLinks::connect_to_coordinator(Deaths& deaths) {
  next_try_ = Clock::now() + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  if (Clock::now() > last_try_) {
    next_try_ = {};
    log(LogLevel::kInfo, "no connection to rank " + std::to_string(coordinator_) +
                             ": deaths on other nodes may be noticed late");
    return;
  }
  std::optional<std::string> found;
  try {
    found = store_of(settings_).try_get(kCoordinator);
  } catch (const Error& error) {
    // Without the store this node could not learn of a death on the coordinator's node.
    if (error.kind() != ErrorKind::kTransport || ++failures_ < kMostFailures) throw;
    next_try_ = {};
    deaths.emplace_back(coordinator_, "the job's store is gone, and this node was not linked to rank " +
                                          std::to_string(coordinator_) + " yet");
    return;
  }
  failures_ = 0;
  if (!found) return;
  const auto coordinator = coordinator_place(*found);
  if (!coordinator)
    throw Error(ErrorKind::kInternal, "the store says " + excerpt(*found) + " of where rank " +
                                          std::to_string(coordinator_) + " listens");
  for (const std::string& host : {coordinator->address, settings_.master}) {
    const int socket = host.empty() ? -1 : connect_to(host, coordinator->port);
    if (socket < 0) continue;
    const std::string text = greeting(coordinator->token, settings_.rank) + all_told();
    if (send(socket, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
      close_socket(socket);
      continue;
    }
    close_on_fork(socket);
    keep_alive(socket);
    links_.push_back({socket, coordinator_, "", Clock::now()});
    next_try_ = {};
    return;
  }
  if (refusals_ > 0 && ++refusals_ > kMostRefusals) {
    next_try_ = {};
    deaths.emplace_back(coordinator_, "it has closed the connection to it, and takes no other; process " +
                                          std::to_string(settings_.members.at(coordinator_).pid) +
                                          " has ended");
  }
}

void NodeLinks::try_again() {
  refusals_ = 1;
  pause_ = kFirstPause;
  next_try_ = Clock::now() + pause_;
  last_try_ = next_try_ + kTryFor;
}

// Reads the greeting; false if it does not present the job's token.
bool NodeLinks::greet(Link& link) {
  char buffer[kGreeting];
  const ssize_t got = recv(link.socket, buffer, kGreeting - link.greeting.size(), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  link.greeting.append(buffer, static_cast<std::size_t>(got));
  if (link.greeting.size() < kGreeting) return true;
  for (const int rank : leaders_) {
    if (link.greeting != greeting(token_, rank)) continue;
    link.rank = rank;
    link.accepted = true;
    if (send(link.socket, &kAccepted, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) return false;
    send_over(link, all_told());
    return true;
  }
  return false;
}

bool NodeLinks::is_over(Link& link, Deaths& deaths) {
  if (link.rank < 0) return !greet(link);
  char bytes[LateQuestion::kLongestLine];
  const ssize_t got = recv(link.socket, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got > 0) {
    std::string_view said(bytes, static_cast<std::size_t>(got));
    if (!link.accepted && said.front() == kAccepted) {
      link.accepted = true;
      refusals_ = 0;
      said.remove_prefix(1);
    }
    const LinkNews news = link.messages.hear(said);
    hear(news);
    return news.ended;
  }
  const int why = link.broke != 0 ? link.broke : got < 0 ? errno : 0;
  if (!link.accepted) {
    try_again();
    return true;
  }
  const bool process_ended = why == 0 || why == ECONNRESET || why == EPIPE;
  if (process_ended) {
    const long pid = settings_.members.at(link.rank).pid;
    deaths.emplace_back(
        link.rank, why == 0 ? "the connection to it closed; process " + std::to_string(pid) + " has ended"
                            : "the connection to it broke; process " + std::to_string(pid) +
                                  " has ended, or its node was away for too long");
  } else {
    const Deaths all = node_of(link.rank);
    deaths.insert(deaths.end(), all.begin(), all.end());
  }
  return true;
}

void NodeLinks::pass_on(const LateQuestion& question) noexcept {
  const auto peer = settings_.members.find(question.rank);
  const std::string line = question.line();
  if (peer == settings_.members.end() || line.empty()) return;
  for (Link& link : links_) {
    const bool leads_there = link.rank >= 0 && (settings_.rank != coordinator_ ||
                                                settings_.members.at(link.rank).node == peer->second.node);
    if (leads_there && is_quiet(link.socket) && link.messages.may_ask()) send_over(link, line);
  }
}

void NodeLinks::tell(int rank) noexcept {
  if (!known_.insert(rank).second) return;
  const std::string line = LinkMessages::death_line(rank);
  for (Link& link : links_) {
    if (link.rank >= 0 && is_quiet(link.socket)) send_over(link, line);
  }
}

void NodeLinks::hear(const LinkNews& news) {
  if (news_.questions.size() < kMostQuestions)
    news_.questions.insert(news_.questions.end(), news.questions.begin(), news.questions.end());
  for (const int rank : news.deaths) {
    if (!settings_.members.contains(rank) || known_.contains(rank)) continue;
    news_.deaths.push_back(rank);
    if (settings_.rank == coordinator_) {
      tell(rank);
    } else {
      known_.insert(rank);
    }
  }
}

void NodeLinks::send_over(Link& link, std::string_view text) noexcept {
  if (!text.empty() && send(link.socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
      errno != EAGAIN && errno != EINTR)
    link.broke = errno;
}

std::string NodeLinks::all_told() const {
  std::string lines;
  for (const int rank : known_) lines += LinkMessages::death_line(rank);
  return lines;
}

NodeLinks::Deaths NodeLinks::node_of(int rank) const {
  Deaths all;
  const std::string& node = settings_.members.at(rank).node;
  for (const auto& [other, peer] : settings_.members) {
    if (peer.node == node) all.emplace_back(other, "its node does not answer any more");
  }
  return all;
}

void NodeLinks::close_all() noexcept {
  for (const Link& link : links_) {
    say_last(link.socket, LinkMessages::kGoodbye);
    close_registered(link.socket);
  }
  links_.clear();
  if (listener_ >= 0) close_registered(listener_);
  listener_ = -1;
}

}  // namespace altorch
