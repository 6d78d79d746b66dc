#include "observe/trace/late_ranks.h"

#include <poll.h>
#include <sys/socket.h>

#include <fstream>

#include "common/descriptor.h"
#include "common/unix_socket.h"
#include "common/wait_clock.h"
#include "observe/trace/report_text.h"
#include "observe/trace/trace_board.h"
#include "observe/trace/trace_socket.h"

namespace altorch {
namespace {

constexpr int kMostAsked = 4;
constexpr std::chrono::milliseconds kPatience{500};  // with all of them
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
                                       std::chrono::milliseconds patience) {
  const std::string name = socket_of(pid);
  if (name.empty() || name.size() > AbstractAddress::kLongest) return std::nullopt;
  const Descriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress address(name);
  const auto deadline = WaitClock::now() + patience;
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

// Who waits in another group may wait there for those who wait here.
std::string late_answer(const ProcessReport& report, std::string_view key) {
  const std::string place = report.place.empty() ? "" : "; its program is at " + report.place;
  std::string here = "not in this group any more", elsewhere;
  for (const GroupReport& group : report.groups) {
    if (group.key == key) {
      here = state_of(group, report.now_ns);
      if (!group.under_way.empty()) return here + place;
    } else if (!group.under_way.empty() && elsewhere.empty()) {
      elsewhere = "; in group '" + group.name + "' it is " + state_of(group, report.now_ns);
    }
  }
  return here + elsewhere + place;
}

std::string words_of_late_ranks(const JobWatch& watch, std::string_view key, std::span<const int> late,
                                std::span<const int> global_ranks) {
  const JobReport job = job_report(watch);
  const auto deadline = WaitClock::now() + kPatience;
  std::string words;
  int asked = 0;
  for (const int rank : late) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - WaitClock::now());
    if (left.count() <= 0 || asked == kMostAsked) break;
    const auto member = job.members.find(global_ranks[static_cast<std::size_t>(rank)]);
    if (member == job.members.end() || !member->second.near || member->first == job.rank) continue;
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
