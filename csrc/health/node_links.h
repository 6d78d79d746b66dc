// SPDX-License-Identifier: BSD-3-Clause
// TCP connections between the lowest ranks of nodes, which notice by them that such a process of
// another node has ended, or that a node is silent.
//
//     node 0             node 1             node 2
//     coordinator  <---  leader
//          ^------------------------------  leader
//
// The coordinator is the lowest rank of the job; it listens if there is more than one node. The
// leader of each other node, its lowest rank, connects. The coordinator writes a random token into
// the store, drops connections that do not present it, and sends one byte over a valid one. After
// that a link carries questions about missing ranks, deaths and a goodbye (link_messages.h). The
// coordinator passes on what a leader tells it to the other leaders. If a link closes without a
// goodbye, its process is dead, and look() returns that rank; malformed bytes are no evidence of
// that. If it closes before the accepting byte, the leader tries again, and takes the coordinator
// for dead after kMostRefusals tries. A stopped process keeps its connections. TCP keepalive closes
// those to a silent node after ALTORCH_SILENCE_SECONDS; then look() returns all ranks of that node.
// Thread rules: one thread, the liveness monitor's.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "health/link_messages.h"
#include "health/liveness.h"

namespace altorch {

// Where the coordinator listens.
struct CoordinatorPlace {
  int port = 0;
  std::string token, address;  // the address may be empty
};
// Parses what the store holds; empty if that is malformed.
std::optional<CoordinatorPlace> coordinator_place(const std::string& text);

class NodeLinks {
 public:
  explicit NodeLinks(const LivenessSettings& settings);
  ~NodeLinks();
  NodeLinks(const NodeLinks&) = delete;

  // The coordinator listens; leaders connect from look(), once the coordinator has written its
  // address into the store.
  void open() noexcept;
  void add_to(std::vector<pollfd>& entries) const;
  // How long poll() may sleep before look() must be called; -1: without a limit.
  int poll_timeout_ms() const;
  using Deaths = std::vector<std::pair<int, std::string>>;
  // Returns the ranks that have died, with the evidence. `entries`: those of add_to(), after
  // poll().
  Deaths look(std::span<const pollfd> entries) noexcept;
  // What has arrived since the last call. Each death is there once, and not if this process has
  // told it.
  LinkNews take_news() { return std::exchange(news_, {}); }
  // Tells the other nodes that `rank` is dead, once; those whose links are made later, too. A node
  // that seems silent is left out, and hears of it from the store.
  void tell(int rank) noexcept;
  // Sends the question towards the node of its rank, through the coordinator. Drops it if there is
  // no link, if the peer lags behind, or if the rate is reached.
  void pass_on(const LateQuestion& question) noexcept;
  // Sends a goodbye over all links and closes them.
  void close_all() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Link {
    int socket;
    int rank;  // the peer's; -1: it has not presented the token yet
    std::string greeting;
    Clock::time_point since;
    LinkMessages messages = {};
    int broke = 0;          // errno of a failed send, which recv() does not report again
    bool accepted = false;  // the coordinator has accepted the greeting
  };
  void accept_all();
  void connect_to_coordinator(Deaths& deaths);
  bool greet(Link& link);
  // Connects once more, after the coordinator has closed a connection before it accepted it.
  void try_again();
  // Whether the link has ended. Adds the peer to `deaths` if it has died, or all ranks of its node
  // if the node is silent.
  bool is_over(Link& link, Deaths& deaths);
  Deaths node_of(int rank) const;
  void hear(const LinkNews& news);
  // Does not wait; what the peer's buffer does not take is lost.
  static void send_over(Link& link, std::string_view text) noexcept;
  std::string all_told() const;

  const LivenessSettings& settings_;
  int coordinator_ = 0;
  std::vector<int> leaders_;  // of all nodes but the coordinator's
  bool connects_ = false;     // this process is a leader
  int listener_ = -1;
  std::string token_;
  std::vector<Link> links_;
  LinkNews news_;        // received, not taken yet
  std::set<int> known_;  // deaths that were told or received
  Clock::time_point next_try_{}, last_try_{};
  int failures_ = 0;  // store requests that failed since the last answer
  int refusals_ = 0;  // tries since the coordinator closed a connection unread; 0: none since the last link
  std::chrono::milliseconds pause_{};  // after the next try
};

}  // namespace altorch
