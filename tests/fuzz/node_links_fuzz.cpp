// SPDX-License-Identifier: BSD-3-Clause
// What strangers say to the rank that hears of deaths on other nodes, and where the store says that
// it listens.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/target.h"
#include "health/node_links.h"
#include "support/map_store.h"

namespace altorch {
namespace {

// Closed by a reset, so that no port stays in use.
int call(int port) {
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const linger at_once{1, 0};
  setsockopt(made, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  return made;
}

void look(NodeLinks& links) {
  std::vector<pollfd> entries;
  links.add_to(entries);
  poll(entries.data(), static_cast<nfds_t>(entries.size()), 0);
  fuzz::require(links.look(entries).empty(), "no peer without the token tells of a death");
}

}  // namespace

FUZZ_TARGET(node_links, 100) {
  if (input.up_to(1) == 0) {
    if (const auto place = coordinator_place(input.rest()))
      fuzz::require(place->port > 0 && place->port < 65536, "a port is one");
    return;
  }
  const auto store = std::make_shared<MapStore>();
  LivenessSettings settings{.name = "fuzzed", .store = store};
  settings.members = {{0, {"host/a", 1}}, {1, {"host/b", 2}}};
  settings.address = "127.0.0.1";
  NodeLinks links(settings);
  links.open();
  const auto coordinator = coordinator_place(store->try_get("coordinator").value_or(""));
  const int stranger = coordinator ? call(coordinator->port) : -1;
  if (stranger < 0) return;
  while (const auto said = input.piece()) {
    if (send(stranger, said->data(), said->size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    look(links);
  }
  close(stranger);
  look(links);
}

}  // namespace altorch
