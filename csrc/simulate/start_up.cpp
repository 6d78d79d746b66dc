// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/start_up.h"

namespace altorch {
namespace {

// Requests for each rank, and bytes for each pair of ranks: every rank reads the info blobs of all
// ranks. tests/cpp/scale/making_test.cpp compares them with what it counts.
constexpr double kRequestsOfRank = 15.6, kBytesOfPair = 53;

}  // namespace

StartUp simulated_start_up(const Network& network) {
  const double ranks = network.ranks();
  StartUp found{kRequestsOfRank * ranks, kBytesOfPair * ranks * ranks, 0};
  found.seconds = found.requests * network.store_request + found.bytes * network.beta;
  return found;
}

}  // namespace altorch
