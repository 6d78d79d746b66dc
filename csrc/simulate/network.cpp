// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/network.h"

#include <sstream>
#include <string>

#include "base/error.h"

namespace altorch {
namespace {

void check_seconds(const char* name, double seconds) {
  if (seconds >= 0 && seconds <= 1) return;  // false for NaN
  std::ostringstream value;
  value << seconds;
  throw Error(ErrorKind::kInvalidArgument,
              std::string(name) + " is " + value.str() + " s; it must lie between 0 and 1 s");
}

}  // namespace

void Network::check() const {
  const bool counts = nodes >= 1 && per_node >= 1 && nodes <= kMostRanks && per_node <= kMostPerNode;
  if (!counts || std::int64_t{nodes} * per_node > kMostRanks) {
    throw Error(ErrorKind::kInvalidArgument,
                std::to_string(nodes) + " nodes of " + std::to_string(per_node) +
                    " ranks: there must be at least 1 of each, at most " + std::to_string(kMostPerNode) +
                    " ranks a node, and at most " + std::to_string(kMostRanks) + " ranks");
  }
  check_seconds("the latency between nodes", alpha);
  check_seconds("the time of a byte between nodes", beta);
  check_seconds("the time of a byte of one rank", rank_beta);
  check_seconds("the latency on a node", on_node_alpha);
  check_seconds("the time of a byte on a node", on_node_beta);
  check_seconds("the time to reduce a byte", gamma);
  check_seconds("the time of a call outside of the engine", call);
  check_seconds("the time of a request to the store", store_request);
}

}  // namespace altorch
