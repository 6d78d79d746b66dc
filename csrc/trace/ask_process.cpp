// SPDX-License-Identifier: BSD-3-Clause
#include "trace/ask_process.h"

#include <poll.h>
#include <sys/socket.h>

#include <fstream>

#include "base/wait_clock.h"
#include "platform/descriptor.h"
#include "platform/unix_socket.h"
#include "trace/trace_socket.h"

namespace altorch {
namespace {

constexpr std::size_t kLongestAnswer = 4096;

// Its trace socket, which is abstract: without the leading zero; empty: there is none.
std::string socket_of(long pid) {
  std::ifstream table("/proc/net/unix");
  const std::string beginning = "@" + TraceSocket::beginning_of_name(pid);
  for (std::string line; std::getline(table, line);) {
    if (const auto found = line.find(beginning); found != line.npos) return line.substr(found + 1);
  }
  return "";
}

bool is_stopped(long pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_ends = text.rfind(") ");
  return name_ends != text.npos && name_ends + 2 < text.size() &&
         (text[name_ends + 2] == 'T' || text[name_ends + 2] == 't');
}

bool is_readable(int socket, WaitClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - WaitClock::now()).count();
  pollfd entry{socket, POLLIN, 0};
  return left > 0 && poll(&entry, 1, static_cast<int>(left)) > 0;
}

}  // namespace

std::optional<std::string> ask_process(long pid, std::string_view question,
                                       std::chrono::milliseconds timeout) {
  const std::string name = socket_of(pid);
  if (name.empty() || name.size() > AbstractAddress::kLongest) return std::nullopt;
  const Descriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress address(name);
  const auto deadline = WaitClock::now() + timeout;
  const std::string line = std::string(question) + "\n";
  if (*connection < 0 || connect(*connection, address.get(), address.bytes()) != 0) return std::nullopt;
  if (const auto peer = peer_of(*connection); !peer || peer->pid != pid) return std::nullopt;
  if (send(*connection, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return std::nullopt;
  std::string answer;
  char part[1024];
  while (answer.size() < kLongestAnswer && is_readable(*connection, deadline)) {
    const ssize_t got = recv(*connection, part, sizeof part, 0);
    if (got == 0) return answer;
    if (got < 0) break;
    answer.append(part, static_cast<std::size_t>(got));
  }
  return std::nullopt;
}

std::optional<std::string> late_text_of_process(long pid, std::string_view key,
                                                std::chrono::milliseconds timeout) {
  if (is_stopped(pid)) return "its process " + std::to_string(pid) + " is stopped";
  return ask_process(pid, std::string(kLateIn) + std::string(key), timeout);
}

}  // namespace altorch
