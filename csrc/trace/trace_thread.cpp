// SPDX-License-Identifier: BSD-3-Clause
#include "trace/trace_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "trace/ask_process.h"
#include "trace/late_ranks.h"
#include "trace/metrics.h"
#include "trace/report_json.h"
#include "trace/report_text.h"
#include "trace/trace_board.h"
#include "trace/trace_signal.h"
#include "trace/trace_socket.h"

namespace altorch {
namespace {

constexpr std::chrono::seconds kEndTimeout{1};
constexpr int kTimeoutMs = 1000;
constexpr std::chrono::seconds kMetricsEvery{5};
constexpr std::chrono::seconds kBetweenDumps{2};
using Clock = std::chrono::steady_clock;
constexpr std::size_t kAtOnce = 4096;  // that a pipe which takes anything takes whole

// Never closed: a signal handler may be about to write to it.
int wake_fd() {
  static const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0) throw Error(ErrorKind::kTransport, "there can be no eventfd");
  return descriptor;
}

void ring() {
  const std::uint64_t one = 1;
  if (::write(wake_fd(), &one, sizeof one) < 0) {
    // It rings already.
  }
}

// Stops if the reader of standard error takes nothing for a second.
void write_to_standard_error(std::string_view text) {
  while (!text.empty()) {
    pollfd entry{STDERR_FILENO, POLLOUT, 0};
    if (poll(&entry, 1, kTimeoutMs) <= 0) return;
    const ssize_t written = ::write(STDERR_FILENO, text.data(), std::min(text.size(), kAtOnce));
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

struct TraceThread::State {
  State(const TraceBoard& asked, bool takes)
      : wake_fd_(wake_fd()),
        board(asked),
        takes_signal(takes),
        socket([this](std::string_view question) { return answer(question); }) {}
  void run();
  // For poll(): until a client's deadline, or until the metrics file is due.
  int poll_timeout_ms() const;
  void write_metrics_file();
  std::string answer(std::string_view question);
  void dump_for_those_who_wait();

  const int wake_fd_;
  const TraceBoard& board;
  const bool takes_signal;
  const std::string metrics = setting("ALTORCH_METRICS");  // where to; empty: nowhere
  // The thread's own:
  TraceSocket socket;
  Clock::time_point next_metrics = Clock::now() + kMetricsEvery, next_dump{};
  bool has_complained = false;
  std::atomic<bool> stopping{false};
};

TraceThread::TraceThread(const TraceBoard& board, bool takes_signal)
    : state_(std::make_shared<State>(board, takes_signal)),
      thread_("al-trace", [state = state_] { state->run(); }) {
  if (takes_signal) TraceSignal::take(wake_fd());
}

TraceThread::~TraceThread() {
  if (state_->takes_signal) TraceSignal::give_back();
  state_->stopping.store(true);
  ring();
  thread_.ends_within(kEndTimeout);
}

int TraceThread::State::poll_timeout_ms() const {
  const int of_clients = socket.poll_timeout_ms();
  if (metrics.empty()) return of_clients;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_metrics - Clock::now());
  const int until = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  return of_clients < 0 ? until : std::min(of_clients, until);
}

void TraceThread::State::write_metrics_file() {
  next_metrics = Clock::now() + kMetricsEvery;
  if (write_metrics(metrics, board.report()) || std::exchange(has_complained, true)) return;
  log(LogLevel::kWarning, "ALTORCH_METRICS='" + metrics + "' cannot be written: " + std::strerror(errno));
}

// Many ranks may miss this one at the same time; its flight record is written once for all that ask
// within kBetweenDumps.
void TraceThread::State::dump_for_those_who_wait() {
  if (Clock::now() < next_dump) return;
  board.dump(/*missed=*/true);
  next_dump = Clock::now() + kBetweenDumps;
}

std::string TraceThread::State::answer(std::string_view question) {
  if (question == "report") return as_json(board.report_with_place());
  if (question.starts_with(kLateIn)) {
    dump_for_those_who_wait();
    return late_answer(board.report_with_place(), question.substr(kLateIn.size()));
  }
  if (question == "dump") return R"({"dump": )" + quoted_json(board.dump()) + "}";
  return R"({"error": "the questions are 'report' and 'dump'"})";
}

void TraceThread::State::run() {
  std::vector<pollfd> entries;
  while (!stopping) {
    entries.assign(1, {wake_fd_, POLLIN, 0});
    socket.add_to(entries);
    if (poll(entries.data(), entries.size(), poll_timeout_ms()) < 0) continue;
    std::uint64_t rings = 0;
    if (entries[0].revents && read(wake_fd_, &rings, sizeof rings) < 0) {
      // Another one has heard it.
    }
    if (stopping) break;
    if (TraceSignal::has_come())
      write_to_standard_error(as_text(board.report_with_place()) + "  flight record: " + board.dump() + "\n");
    socket.look({entries.begin() + 1, entries.end()});
    if (!metrics.empty() && Clock::now() >= next_metrics) write_metrics_file();
  }
  if (!metrics.empty()) write_metrics_file();
  ring();  // what it has heard may have been meant for the next one
}

}  // namespace altorch
