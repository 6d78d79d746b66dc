"""The harness itself: it reports what ranks did, ends what hangs, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from harness import Cluster, RankFailure, is_running, on_ranks, raise_for


def returns_rank(world):
    return (world.rank, world.size)


def fails_on_rank_1(world):
    print("a word on stdout")
    if world.rank == 1:
        raise ValueError("rank 1 fails on purpose")


def hangs_on_rank_1(world):
    if world.rank == 1:
        time.sleep(1000)


def leaves_a_child(world):
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True
    ).pid


def digests_differ(world):
    import torch

    world.case = "different on purpose"
    world.identical(torch.tensor([world.rank]))


def test_outcomes_deadlines_and_cleaning_up():
    with Cluster(2, group=False) as cluster:
        assert cluster.check(returns_rank) == [(0, 2), (1, 2)]

        outcomes = cluster.run(fails_on_rank_1)
        assert [outcome.status for outcome in outcomes] == ["ok", "error"]
        assert "rank 1 fails on purpose" in outcomes[1].traceback
        assert "a word on stdout" in outcomes[1].output
        with pytest.raises(RankFailure, match="1 of 2 ranks failed"):
            raise_for(outcomes)

        with pytest.raises(RankFailure, match="different on purpose"):
            cluster.check(digests_differ)

        children = cluster.check(leaves_a_child)
        outcomes = cluster.run(hangs_on_rank_1, deadline=1)
        assert [outcome.status for outcome in outcomes] == ["ok", "late"]
        assert "hangs_on_rank_1" in outcomes[1].output  # the stack at the deadline
        everyone = [*cluster.pids.values(), *children]
    assert [pid for pid in everyone if is_running(pid)] == []


def test_a_killed_rank_is_reported_as_dead():
    # Only plain processes: torchrun and mpirun end the other ranks themselves.
    with Cluster(2, group=False, launcher="plain") as cluster:
        outcomes = cluster.run(hangs_on_rank_1, deadline=20, before_wait=lambda: cluster.kill(1))
        assert [outcome.status for outcome in outcomes] == ["ok", "died"]


@on_ranks(1, 2, 3)
@pytest.mark.parametrize("word", ["a", "b"])
def test_pool_runs_bodies_on_every_rank(world, word):
    import torch
    import torch.distributed as dist

    assert word in "ab"
    assert dist.get_world_size() == world.size
    total = torch.tensor([world.rank + 1])
    dist.all_reduce(total)
    assert total.item() == world.size * (world.size + 1) // 2
    world.case = "sum of ranks"
    world.identical(total)
