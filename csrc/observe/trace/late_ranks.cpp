#include "observe/trace/late_ranks.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <memory>

#include "common/wait_clock.h"
#include "observe/trace/report_text.h"

namespace altorch {
namespace {

constexpr int kMostAsked = 4;
constexpr std::chrono::milliseconds kPatience{500};  // with all of them
constexpr std::size_t kLongestAnswer = 4096;

// Its trace socket, which is abstract: without the leading zero; empty: there is none.
std::string socket_of(long pid) {
  std::ifstream table("/proc/net/unix");
  const std::string beginning = "@altorch-trace-" + std::to_string(pid) + "-";
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

struct Connection {
  int socket;
  ~Connection() { close(socket); }
};

// Anybody may take such a name.
bool is_of(int socket, long pid) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == pid;
}

bool is_ready(int socket, short event, WaitClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - WaitClock::now()).count();
  pollfd entry{socket, event, 0};
  return left > 0 && poll(&entry, 1, static_cast<int>(left)) > 0;
}

}  // namespace

std::optional<std::string> ask_process(long pid, std::string_view question,
                                       std::chrono::milliseconds patience) {
  const std::string name = socket_of(pid);
  sockaddr_un address = {};
  if (name.empty() || name.size() >= sizeof address.sun_path) return std::nullopt;
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return std::nullopt;
  const Connection connection{made};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto deadline = WaitClock::now() + patience;
  const std::string line = std::string(question) + "\n";
  if (connect(made, reinterpret_cast<const sockaddr*>(&address), length) != 0 || !is_of(made, pid) ||
      send(made, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return std::nullopt;
  std::string answer;
  char part[1024];
  while (answer.size() < kLongestAnswer && is_ready(made, POLLIN, deadline)) {
    const ssize_t got = recv(made, part, sizeof part, 0);
    if (got == 0) return answer;
    if (got < 0) break;
    answer.append(part, static_cast<std::size_t>(got));
  }
  return std::nullopt;
}

// Who waits in another group may wait there for those who wait here.
std::string late_answer(const ProcessReport& report, std::string_view key) {
  std::string here = "not in this group any more", elsewhere;
  for (const GroupReport& group : report.groups) {
    if (group.key == key) {
      here = state_of(group, report.now_ns);
      if (!group.under_way.empty()) return here;
    } else if (!group.under_way.empty() && elsewhere.empty()) {
      elsewhere = "; in group '" + group.name + "' it is " + state_of(group, report.now_ns);
    }
  }
  return here + elsewhere;
}

std::string words_of_late_ranks(const JobWatch& watch, std::string_view key, std::span<const int> late,
                                std::span<const int> global_ranks) {
  const LivenessSettings& settings = watch.liveness.settings();
  const auto own = settings.members.find(settings.rank);
  const auto deadline = WaitClock::now() + kPatience;
  std::string words;
  int asked = 0;
  for (const int rank : late) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - WaitClock::now());
    if (left.count() <= 0 || asked == kMostAsked) break;
    const auto member = settings.members.find(global_ranks[static_cast<std::size_t>(rank)]);
    if (member == settings.members.end() || own == settings.members.end() ||
        member->second.home != own->second.home || member->first == settings.rank)
      continue;
    ++asked;
    const long pid = member->second.pid;
    const std::string who = "; rank " + std::to_string(rank) + ": ";
    if (is_stopped(pid)) {
      words += who + "its process " + std::to_string(pid) + " is stopped";
    } else if (const auto answer = ask_process(pid, std::string(kLateIn) + std::string(key), left)) {
      words += who + *answer;
    }
  }
  return words;
}

}  // namespace altorch
