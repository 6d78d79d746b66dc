// SPDX-License-Identifier: BSD-3-Clause
#include "trace/trace_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/random_name.h"
#include "platform/close_on_fork.h"
#include "platform/unix_socket.h"

namespace altorch {
namespace {

constexpr std::chrono::seconds kClientTimeout{5};  // for its question; for it to take the answer
constexpr std::chrono::seconds kDeaf{1};
constexpr std::size_t kMostClients = 16, kLongestQuestion = 512;

// Listens under a random name, which no other process can have taken before.
int listen_as(const std::string& name) {
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return -1;
  const AbstractAddress address(name);
  if (bind(made, address.get(), address.bytes()) == 0 && listen(made, static_cast<int>(kMostClients)) == 0)
    return made;
  const int error = errno;
  close(made);
  errno = error;
  return -1;
}

bool may_ask(int client) {
  const auto peer = peer_of(client);
  return peer && (peer->uid == 0 || is_same_user(*peer));
}

}  // namespace

std::string TraceSocket::beginning_of_name(long pid) { return "altorch-trace-" + std::to_string(pid) + "-"; }

TraceSocket::TraceSocket(Answer answer)
    : answer_(std::move(answer)),
      name_(beginning_of_name(getpid()) + random_name(8)),
      listener_(listen_as(name_)) {
  if (listener_ >= 0)
    close_on_fork(listener_);
  else
    log(LogLevel::kInfo, std::string("`altorch trace` cannot ask this process: ") + std::strerror(errno));
}

TraceSocket::~TraceSocket() {
  for (const Client& client : clients_) close_registered(client.socket);
  if (listener_ >= 0) close_registered(listener_);
}

void TraceSocket::add_to(std::vector<pollfd>& entries) const {
  const bool deaf = Clock::now() < deaf_until_;
  entries.push_back({deaf ? -1 : listener_, POLLIN, 0});  // poll() passes over what is negative
  for (const Client& client : clients_)
    entries.push_back({client.socket, static_cast<short>(client.writes ? POLLOUT : POLLIN), 0});
}

int TraceSocket::poll_timeout_ms() const {
  const auto now = Clock::now();
  auto first = now < deaf_until_ ? deaf_until_ : Clock::time_point::max();
  for (const Client& client : clients_) first = std::min(first, client.until);
  if (first == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - now);
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

void TraceSocket::look(std::span<const pollfd> entries) {
  const auto now = Clock::now();
  for (std::size_t i = clients_.size(); i-- > 0;) {
    Client& client = clients_[i];
    const bool ready = i + 1 < entries.size() && entries[i + 1].revents != 0;
    if (ready ? serve(client) : now < client.until) continue;
    close_registered(client.socket);
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (!entries.empty() && entries[0].revents != 0) accept_one();
}

// If the process has no descriptor left, the client stays in the queue, and poll() would return at
// once for ever. So the listener is not polled for kDeaf.
void TraceSocket::accept_one() {
  const int made = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (made < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      deaf_until_ = Clock::now() + kDeaf;
    return;
  }
  if (clients_.size() >= kMostClients || !may_ask(made)) {
    close(made);
    return;
  }
  close_on_fork(made);
  clients_.push_back({made, Clock::now() + kClientTimeout});
}

bool TraceSocket::serve(Client& client) {
  if (!client.writes && !read_question(client)) return false;
  if (!client.writes) return true;
  while (client.sent < client.answer.size()) {
    const ssize_t sent = send(client.socket, client.answer.data() + client.sent,
                              client.answer.size() - client.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    client.sent += static_cast<std::size_t>(sent);
  }
  return false;
}

bool TraceSocket::read_question(Client& client) {
  char bytes[kLongestQuestion];
  const ssize_t count = recv(client.socket, bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  client.question.append(bytes, static_cast<std::size_t>(count));
  const auto end = client.question.find('\n');
  if (end == std::string::npos) return count > 0 && client.question.size() < kLongestQuestion;
  client.answer = answer_(std::string_view(client.question).substr(0, end));
  client.until = Clock::now() + kClientTimeout;  // making the answer was not the client's time
  client.writes = true;
  return true;
}

}  // namespace altorch
