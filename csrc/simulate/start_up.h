// SPDX-License-Identifier: BSD-3-Clause
// Estimates the requests and bytes that the job's store serves while a group is made.
#pragma once

#include "simulate/network.h"

namespace altorch {

struct StartUp {
  double requests, bytes;  // of all ranks; bytes in both directions
  double seconds;          // the store serves one request after another, through its node's port
};

// Requests and bytes as tests/cpp/scale counts them; polls of ranks that wait for a late one are
// not in it. A pure function; any thread.
StartUp simulated_start_up(const Network& network);

}  // namespace altorch
