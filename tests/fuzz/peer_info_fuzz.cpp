// SPDX-License-Identifier: BSD-3-Clause
// What ranks tell each other before they start MPI.
#include "bootstrap/peer_info.h"
#include "fuzz/hostile_store.h"
#include "platform/cores.h"

namespace altorch {

FUZZ_TARGET(peer_info, 3000) {
  const int rank = input.up_to(1);
  if (input.up_to(1) == 0) {
    const PeerInfo peer = decode_peer_info(input.rest());
    const std::string again = encode(peer);
    fuzz::require(encode(decode_peer_info(again)) == again, "what a rank says of itself survives");
    const std::string lists[] = {peer.cores};
    count_cores(lists);
    return;
  }
  fuzz::HostileStore store(input);
  const PeerTable table = exchange_peer_info({}, rank, 2, store, "", std::chrono::seconds(1));
  fuzz::require(table.job.find('/') == std::string::npos, "a job's name is no path");
  all_agree(true, 2, store, "", std::chrono::seconds(1));
}

}  // namespace altorch
