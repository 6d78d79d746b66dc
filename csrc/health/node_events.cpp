// SPDX-License-Identifier: BSD-3-Clause
#include "health/node_events.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/fnv.h"
#include "platform/close_on_fork.h"
#include "platform/unix_socket.h"

namespace altorch {
namespace {

// The name of the watch is unique to the job.
AbstractAddress address_of(const LivenessSettings& settings, int rank) {
  return AbstractAddress("altorch-news/" + std::to_string(Fnv().add(settings.name).value()) + "/" +
                         std::to_string(rank));
}

std::optional<LateQuestion> question_of(std::string_view message) {
  if (!message.ends_with('\n')) return std::nullopt;  // truncated
  return LateQuestion::from(message.substr(0, message.size() - 1));
}

}  // namespace

NodeEvents::NodeEvents(const LivenessSettings& settings) : settings_(settings) {
  const std::string& node = settings.members.at(settings.rank).node;
  for (const auto& [rank, peer] : settings.members) {
    if (rank != settings.rank && peer.node == node) neighbours_.push_back(rank);
  }
  if (neighbours_.empty() || neighbours_.size() + 1 == settings.members.size()) return;
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) return;
  close_on_fork(socket_);
  const int on = 1;
  const AbstractAddress own = address_of(settings, settings.rank);
  if (setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
      bind(socket_, own.get(), own.bytes()) == 0)
    return;
  close_registered(socket_);
  socket_ = -1;
}

NodeEvents::~NodeEvents() {
  if (socket_ >= 0) close_registered(socket_);
}

void NodeEvents::tell(int rank) noexcept {
  for (const int neighbour : neighbours_) send_to(neighbour, &rank, sizeof rank);
}

void NodeEvents::pass_on(const LateQuestion& question, int neighbour) noexcept {
  const std::string line = question.line();
  if (!line.empty()) send_to(neighbour, line.data(), line.size());
}

void NodeEvents::send_to(int neighbour, const void* message, std::size_t bytes) noexcept {
  if (socket_ < 0) return;
  const AbstractAddress to = address_of(settings_, neighbour);
  sendto(socket_, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT, to.get(),
         to.bytes());  // fails if the neighbour has ended
}

// A death is sent as a number; longer datagrams are questions, since every line is longer than a
// number.
NodeEvents::Received NodeEvents::receive() noexcept {
  Received received;
  int rank = 0;
  char datagram[LateQuestion::kLongestLine];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  iovec data{datagram, sizeof datagram};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  while (true) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(socket_, &message, MSG_DONTWAIT);
    if (got < 0) return received;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
    const bool is_neighbour = std::any_of(neighbours_.begin(), neighbours_.end(), [&](int each) {
      return settings_.members.at(each).pid == sender.pid;
    });
    if (!is_neighbour) continue;
    if (got == sizeof rank) {
      std::memcpy(&rank, datagram, sizeof rank);
      if (settings_.members.contains(rank)) received.deaths.push_back(rank);
    } else if (auto question = question_of({datagram, static_cast<std::size_t>(got)})) {
      received.questions.push_back(*std::move(question));
    }
  }
}

}  // namespace altorch
