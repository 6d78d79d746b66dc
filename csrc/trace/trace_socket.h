// SPDX-License-Identifier: BSD-3-Clause
// The socket at which a process is asked. It is abstract, "altorch-trace-<pid>-<random>", so that
// nothing of it stays on disk.
//
// A client sends one question, a line, and gets one answer; then the connection ends. Only
// processes of the same user, or of root, are answered. A client that sends no whole line, or too
// long a line, or does not read, is disconnected after a few seconds at most. Other clients are
// served meanwhile. Thread rules: one thread.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace altorch {

class TraceSocket {
 public:
  using Answer = std::function<std::string(std::string_view question)>;
  // If there can be no socket, no question is ever answered; a log line says so.
  explicit TraceSocket(Answer answer);
  ~TraceSocket();
  TraceSocket(const TraceSocket&) = delete;

  const std::string& name() const { return name_; }  // without the leading zero
  // A random part follows, which no other process can guess.
  static std::string beginning_of_name(long pid);
  void add_to(std::vector<pollfd>& entries) const;
  // How long poll() may sleep before look() must be called; -1: without a limit.
  int poll_timeout_ms() const;
  // `entries`: those of add_to(), after poll(). Never blocks.
  void look(std::span<const pollfd> entries);

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
    int socket;
    Clock::time_point until;
    std::string question = {}, answer = {};
    std::size_t sent = 0;
    bool writes = false;
  };
  void accept_one();
  // False if the client is to be disconnected.
  bool serve(Client& client);
  bool read_question(Client& client);

  const Answer answer_;
  std::string name_;
  int listener_ = -1;
  std::vector<Client> clients_;
  Clock::time_point deaf_until_{};
};

}  // namespace altorch
