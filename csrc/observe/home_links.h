// Connections by which processes that do not see each other's process ids notice each other's end.
//
// The job's first rank (the hub) listens, where there are several homes only, and the first process of every
// other home connects. The hub hands out a random token through the store; a connection that does not present
// it is dropped, one that does gets a byte. Nothing else is ever sent but questions about ranks that are missed
// (late_question.h) and a goodbye: a connection that closes without one is a death. Before the byte it may only
// have been one too many for the hub, and is tried again. The kernel keeps the connection of a stopped
// process, and notices a node that is gone (ALTORCH_SILENCE_SECONDS). Thread rules: one thread, the monitor's.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "observe/late_question.h"
#include "observe/liveness.h"

namespace altorch {

// Where the hub listens, as the store says.
struct HubPlace {
  int port = 0;
  std::string token, address;  // the address may be empty
};
// Nothing where the text is anything else.
std::optional<HubPlace> hub_place(const std::string& text);

class HomeLinks {
 public:
  explicit HomeLinks(const LivenessSettings& settings);
  ~HomeLinks();
  HomeLinks(const HomeLinks&) = delete;

  // Listens, where this is the hub; the others connect from look(), as soon as the store says where.
  void open() noexcept;
  void add_to(std::vector<pollfd>& entries) const;
  // How long poll() may sleep before look() wants to be called; -1: for ever.
  int patience_ms() const;
  using Deaths = std::vector<std::pair<int, std::string>>;
  // Which ranks have died, by what poll() said of the entries of add_to().
  Deaths look(std::span<const pollfd> entries) noexcept;
  // What was asked over the links since the last call.
  std::vector<LateQuestion> take_questions() { return std::exchange(questions_, {}); }
  // Over the link that leads to the home of that rank, by way of the hub; or to nobody.
  void pass_on(const LateQuestion& question) noexcept;
  // Says goodbye.
  void close_all() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Link {
    int socket;
    int rank;  // at the other end; -1: it has not presented itself
    std::string greeting;
    Clock::time_point since;
    LinkWords words = {};
    int broke = 0;          // the errno of a send that failed: recv() does not report it again
    bool accepted = false;  // the hub has accepted the greeting
  };
  void accept_all();
  void connect_to_hub(Deaths& deaths);
  bool greet(Link& link);
  // The hub closed a connection before it accepted it.
  void try_again();
  // True when the link is over; a death is added where it is one.
  bool is_over(Link& link, Deaths& deaths);
  Deaths node_of(int rank) const;

  const LivenessSettings& settings_;
  int hub_ = 0;
  std::vector<int> leaders_;  // first ranks of the other homes than the hub's
  bool connects_ = false;     // this process is one of them
  int listener_ = -1;
  std::string token_;
  std::vector<Link> links_;
  std::vector<LateQuestion> questions_;  // that were heard
  Clock::time_point next_try_{}, last_try_{};
  int failures_ = 0;  // of the store since it last answered
  int refusals_ = 0;  // tries since the hub closed a connection unread; 0: it has closed none
  std::chrono::milliseconds pause_{};  // after the next try
};

}  // namespace altorch
