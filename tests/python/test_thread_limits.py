# SPDX-License-Identifier: BSD-3-Clause
"""No more threads can be started (ulimit -u, pids.max): calls are right, or raise on all ranks and leave nothing."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import CARRIERS, PATIENCE, Cluster


def limit(starts: int) -> None:
    """After so many more, no thread of altorch starts in this process; negative: all do."""
    from altorch._extension import extension

    extension().fail_thread_starts_after(starts)


def message(world, count):
    tensor = torch.full((count,), float(world.rank + 1))
    if world.rank == 1:
        dist.isend(tensor, 0).wait()
        return
    dist.recv(tensor, 1)
    assert tensor.eq(2).all()


def asynchronous(world, count):
    tensors = [torch.full((count,), float(i)) for i in range(4)]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    assert all(tensor.eq(2 * i).all() for i, tensor in enumerate(tensors))


def future(world, count):
    tensor = torch.ones(count)
    then = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0].sum())
    assert then.wait() == 2 * count


def batch(world, count):
    sent, taken = torch.full((count,), float(world.rank)), torch.empty(count)
    other = 1 - world.rank
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, taken, other)]
    ):
        work.wait()
    assert taken.eq(other).all()


def calls_without_new_threads(world):
    """The first asynchronous calls of a group: whatever threads they need run already."""
    dist.barrier()
    if world.rank == 1:
        limit(0)
    for count in (3, 3_000_000):
        for call in (asynchronous, message, future, batch):
            world.case = f"{call.__name__} of {count}"
            call(world, count)
    limit(-1)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_calls_of_a_group_need_no_new_thread(carrier):
    with Cluster(2, launcher="plain", env=CARRIERS[carrier]) as cluster:
        cluster.check(calls_without_new_threads)


def groups_without_threads(world, directory):
    """Starting the n-th thread of a new group fails: its ranks all have the group, or all raise, and soon.

    The first two threads, of the flight recorder and for the store, are there: nothing could tell the other ranks.
    """
    told = []
    for starts in range(2, 8):
        world.case = f"after {starts} threads"
        if world.rank == 1:
            limit(starts)
        began = time.monotonic()
        # torch names groups by their number, and a rank that has failed to make one has counted
        # less.
        dist.distributed_c10d._world.group_count = starts
        try:
            dist.init_process_group(
                "al",
                init_method=f"file://{directory}/{starts}",
                rank=world.rank,
                world_size=2,
                timeout=timedelta(seconds=60),
            )
            tensor = torch.ones(3)
            dist.all_reduce(tensor, async_op=True).wait()
            assert tensor.tolist() == [2, 2, 2]
        except dist.DistBackendError as error:
            told.append((starts, str(error)))
        limit(-1)
        assert time.monotonic() - began < 20 * PATIENCE
        if dist.is_initialized():
            dist.destroy_process_group()
    return told


@pytest.mark.parametrize("carrier", CARRIERS)
def test_all_ranks_hear_of_a_group_without_its_threads(carrier, tmp_path):
    with Cluster(2, group=False, launcher="plain", env=CARRIERS[carrier]) as cluster:
        told = cluster.check(groups_without_threads, directory=str(tmp_path), deadline=200)
    assert [starts for starts, _ in told[0]] == [starts for starts, _ in told[1]]
    assert told[0], "no thread was missing"
    for (_, others), (_, own) in zip(*told, strict=True):
        assert "rank 1" in others
        # Where rank 1 has failed after its last allgather with rank 0, that has lost the connection
        # to it.
        assert "ulimit -u" in others or "is lost" in others
        assert "rank 1" in own
        assert "ulimit -u" in own
        assert "pids.max" in own
