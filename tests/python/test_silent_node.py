# SPDX-License-Identifier: BSD-3-Clause
"""A node whose network goes away: no rank says goodbye, and all ranks on both sides are told within some seconds."""

from __future__ import annotations

import threading
import time

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster, names_all

from tests.ranks.launch import backend_under_test

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al", reason="altorch's own liveness: ALTORCH_TEST_BACKEND is not al"
)
SILENCE = 4  # ALTORCH_SILENCE_SECONDS
WITHIN = SILENCE + 4  # that a call is told so, with 2 s for a machine that runs other tests
PER_NODE = 2


def calls_until_told(world, asynchronous, elements):
    """How long the first call took that failed, what it said, and how long the next took."""
    while True:
        began = time.monotonic()
        try:
            work = dist.all_reduce(torch.ones(elements), async_op=asynchronous)
            if asynchronous:
                work.wait()
        except RuntimeError as error:
            told = time.monotonic()
            with pytest.raises(RuntimeError):
                dist.all_reduce(torch.ones(elements))
            return told - began, str(error), time.monotonic() - told


def meet(world):
    dist.all_reduce(torch.ones(8))


def is_cut_off(nodes, env, body, **parameters):
    prefixes = [list(node.prefix) for node in nodes]
    env = {"MASTER_ADDR": nodes[0].address, **env}
    with Cluster(2 * PER_NODE, launcher="torchrun", env=env, node_prefixes=prefixes) as cluster:
        cluster.check(meet)
        timer = threading.Timer(0.5, nodes[1].cut_off)
        outcomes = cluster.run(body, deadline=60, before_wait=timer.start, **parameters)
        timer.cancel()
    return outcomes


@pytest.mark.parametrize(
    ("carrier", "asynchronous", "elements"),
    [("mpi", False, 8), ("mpi", True, 3_000_000), ("gloo", True, 8), ("gloo", False, 3_000_000)],
)
def test_both_sides_are_told(nodes, carrier, asynchronous, elements):
    env = {"ALTORCH_MPI": "none"} if carrier == "gloo" else {}
    for outcome in is_cut_off(nodes, env, calls_until_told, asynchronous=asynchronous, elements=elements):
        assert outcome.status == "ok", outcome
        seconds, message, again = outcome.value
        assert names_all(message, "group '0'", "all_reduce"), message
        assert seconds < WITHIN * PATIENCE, (seconds, message)
        assert again < 1 * PATIENCE, again


def goes_on(world, seconds):
    ended = time.monotonic() + seconds
    while True:
        tensor = torch.tensor([float(time.monotonic() > ended and world.rank == 0)])
        dist.all_reduce(tensor)
        if tensor.item() > 0:
            return


def test_a_network_that_comes_back_in_time_is_no_death(nodes):
    prefixes = [list(node.prefix) for node in nodes]
    env = {"MASTER_ADDR": nodes[0].address, "ALTORCH_MPI": "none", "ALTORCH_SILENCE_SECONDS": "30"}

    def away():
        nodes[1].cut_off()
        time.sleep(3)
        nodes[1].mend()

    with Cluster(2 * PER_NODE, launcher="torchrun", env=env, node_prefixes=prefixes) as cluster:
        cluster.check(meet)
        timer = threading.Timer(0.5, away)
        for outcome in cluster.run(goes_on, deadline=60, before_wait=timer.start, seconds=8):
            assert outcome.status == "ok", outcome
