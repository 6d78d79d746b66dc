// SPDX-License-Identifier: BSD-3-Clause
// The socket at which a process is asked: abstract, "altorch-trace-<pid>-<random>", so that nothing of it stays on disk.
//
// One question, a line, for a connection; one answer, and the end. Only processes of the same user, or of root, are answered.
// Whoever sends more than a line, nothing, or does not read, is let go after a few seconds; meanwhile the others are served.
// Thread rules: one thread.
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
  // Where there can be no socket, nobody is ever answered; a log line says so.
  explicit TraceSocket(Answer answer);
  ~TraceSocket();
  TraceSocket(const TraceSocket&) = delete;

  const std::string& name() const { return name_; }  // without the leading zero
  // Behind it follows what nobody can guess.
  static std::string beginning_of_name(long pid);
  void add_to(std::vector<pollfd>& entries) const;
  // How long poll() may sleep before look() wants to be called; -1: for ever.
  int patience_ms() const;
  // By what poll() said of the entries of add_to(). Never blocks.
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
  // False when it is done with.
  bool serve(Client& client);
  bool read_question(Client& client);

  const Answer answer_;
  std::string name_;
  int listener_ = -1;
  std::vector<Client> clients_;
  Clock::time_point deaf_until_{};
};

}  // namespace altorch
