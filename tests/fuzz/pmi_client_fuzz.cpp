// SPDX-License-Identifier: BSD-3-Clause
// What the PMI-1 client that Open MPI 4 loads makes of answers.
#include <unistd.h>

#include "bootstrap/flux/pmi_client.cpp"
#include "fuzz/target.h"

FUZZ_TARGET(pmi_client, 2000) {
  const std::string answers = input.rest();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  if (send(ends[1], answers.data(), answers.size(), MSG_NOSIGNAL) >= 0) {
    shutdown(ends[1], SHUT_WR);
    client().fd = -1;
    client().pending.clear();
    setenv("PMI_FD", std::to_string(ends[0]).c_str(), 1);
    int spawned, ranks[4];
    char text[64];
    PMI_Init(&spawned);
    PMI_Get_clique_ranks(ranks, 4);
    PMI_KVS_Get_my_name(text, sizeof text);
    PMI_KVS_Put("a", "b", "c");
    for (int i = 0; i < 8; ++i) PMI_KVS_Get("a", "b", text, sizeof text);
    PMI_Barrier();
    client().fd = -1;
    unsetenv("PMI_FD");
  }
  close(ends[0]);
  close(ends[1]);
}
