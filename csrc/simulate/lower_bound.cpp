// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/lower_bound.h"

#include <algorithm>

#include "collectives/cost.h"

namespace altorch {
namespace {

// Bytes that the busiest port must carry in one direction. Ports are those of nodes, with `at`
// ranks each; `others`: the ranks behind other ports.
double bytes_of_port(OpKind kind, double n, int ports, double at, double others) {
  switch (kind) {
    case OpKind::kAllReduce:
      return 2 * n * (ports - 1) / ports;
    case OpKind::kReduce:
    case OpKind::kBroadcast:
    case OpKind::kScan:
    case OpKind::kExscan:
      return n;
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kGather:
    case OpKind::kScatter:
      return n * others;
    case OpKind::kAllToAll:
      return n * at * others;
    case OpKind::kBarrier:
    case OpKind::kSend:
    case OpKind::kReceive:
    case OpKind::kOneSided:
      break;
  }
  return 0;
}

// Bytes that each port must reduce.
double bytes_to_reduce(OpKind kind, double n, int ports, double at) {
  if (kind == OpKind::kAllReduce || kind == OpKind::kReduce) return n * (ports - 1) / ports;
  return kind == OpKind::kReduceScatter ? n * at * (ports - 1) : 0;
}

}  // namespace

double lower_bound_seconds(OpKind kind, std::int64_t bytes, const Network& network) {
  const bool one_node = network.nodes == 1;
  const int ports = one_node ? network.per_node : network.nodes;
  if (ports == 1) return 0;
  const double at = one_node ? 1 : network.per_node, n = static_cast<double>(bytes);
  const double alpha = one_node ? network.on_node_alpha : network.alpha;
  const double beta = one_node ? network.on_node_beta : network.beta;
  // A rank may reduce while its port carries other bytes.
  const double reduced = bytes_to_reduce(kind, n, ports, at) / (one_node ? 1 : network.per_node);
  return cost::ceil_log2(ports) * alpha +
         std::max(bytes_of_port(kind, n, ports, at, network.ranks() - at) * beta, reduced * network.gamma);
}

}  // namespace altorch
