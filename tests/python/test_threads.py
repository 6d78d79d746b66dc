# SPDX-License-Identifier: BSD-3-Clause
"""How many threads a process has that is in fifty groups: as many as in one, whatever carries them."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import Cluster

from tests.ranks.launch import backend_under_test, launcher_under_test

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al" or launcher_under_test() != "plain",
    reason="starts ranks of backend al by itself",
)

RANKS, GROUPS = 4, 50
FOR_ALL = {"al-store", "al-trace", "al-liveness", "al-callbacks", "al-progress", "al-recorder"}
A_PAIR_FOR_EACH_PEER = {"al-gloo-read": RANKS - 1, "al-gloo-wait": RANKS - 1}
ROUTES = {
    "shm": ({}, {}),
    "mpi": ({"ALTORCH_SHM_BYTES": "0"}, {"altorch-pmi": 1}),  # MPICH's server; Open MPI's helper is a process
    "gloo": ({"ALTORCH_SHM_BYTES": "0", "ALTORCH_MPI": "none"}, A_PAIR_FOR_EACH_PEER),
}


def threads():
    """Those of altorch: torch, MPI and Gloo have their own."""
    names = Counter(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
    return Counter({name: count for name, count in names.items() if name.startswith(("al-", "altorch-"))})


def settled_threads():
    """Without those that come for a while, where callbacks pile up."""
    end = time.monotonic() + 30
    while (now := threads()) & Counter(["al-relief", "al-callbacks+"]) and time.monotonic() < end:
        time.sleep(0.1)
    return now


def use(group):
    """Whatever starts a thread: calls of both kinds, large ones too, and messages."""
    ranks = dist.get_process_group_ranks(group)
    place = ranks.index(dist.get_rank())
    for tensor in (torch.ones(2), torch.ones(1 << 18)):
        dist.all_reduce(tensor, group=group)
        dist.all_reduce(tensor, group=group, async_op=True).wait()
        sent = dist.isend(tensor, ranks[(place + 1) % len(ranks)], group=group)
        dist.recv(torch.empty_like(tensor), ranks[place - 1], group=group)
        sent.wait()


def join_many_groups(world):
    world.start()
    use(dist.group.WORLD)
    one = settled_threads()
    for number in range(GROUPS - 1):
        ranks = [rank for rank in range(world.size) if rank != number % (2 * world.size)]
        group = dist.new_group(ranks)
        if world.rank in ranks:
            use(group)
    return one, settled_threads()


@pytest.mark.parametrize("route", ROUTES)
def test_a_process_in_fifty_groups_has_few_threads(route):
    env, of_the_carrier = ROUTES[route]
    most = Counter(FOR_ALL) + Counter(of_the_carrier)
    with Cluster(RANKS, group=False, env=env) as cluster:
        for rank, (one, many) in enumerate(cluster.check(join_many_groups, deadline=120)):
            assert many == one, f"rank {rank}: {one} in one group, {many} in {GROUPS}"
            assert many <= most, f"rank {rank}: {many - most}"
