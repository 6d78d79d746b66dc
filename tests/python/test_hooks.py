"""What torch's own interfaces are told of a group, and what they may change: abort hooks, temporary timeouts."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster

HAS_HOOKS = hasattr(dist.ProcessGroup, "register_abort_hook")
needs_hooks = pytest.mark.skipif(not HAS_HOOKS, reason=f"torch {torch.__version__} has no abort hooks")


def register(world):
    """A hook that notes what it saw, on a healthy group."""
    group = dist.group.WORLD
    assert group.supports_abort_hooks
    told = []
    group.register_abort_hook(7, lambda: told.append(threading.current_thread().name))
    dist.all_reduce(torch.ones(4))
    with pytest.raises((ValueError, RuntimeError)):  # a slip of one call's, which no group dies of
        dist.all_gather_into_tensor(torch.ones(3), torch.ones(4))
    assert told == []
    return group, told


def told_of_a_timeout(world, asynchronous):
    group, told = register(world)
    group.set_timeout(timedelta(seconds=1 * PATIENCE))
    if world.rank == 1:
        time.sleep(3 * PATIENCE)
        return 1
    with pytest.raises(dist.DistBackendError, match="all_reduce"):
        if asynchronous:
            dist.all_reduce(torch.ones(4), async_op=True).wait()
        else:
            dist.all_reduce(torch.ones(4))
    return len(told)


@needs_hooks
@pytest.mark.parametrize("asynchronous", [False, True])
def test_abort_hooks_run_before_a_call_that_failed_under_way_says_so(asynchronous):
    with Cluster(2, launcher="plain") as cluster:
        assert cluster.check(told_of_a_timeout, asynchronous=asynchronous) == [1, 1]


def told_of_an_abort(world):
    group, told = register(world)

    def fails():
        raise RuntimeError("a hook's own trouble")

    def aborts():
        told.append("aborts")
        group.abort()  # within a hook: no other one begins

    group.register_abort_hook(8, fails)
    group.register_abort_hook(9, aborts)
    group.register_abort_hook(10, lambda: told.append("taken back"))
    group.unregister_abort_hook(10)
    group.unregister_abort_hook(11)  # there is none
    group.abort()
    assert len(told) == 2
    assert told[1] == "aborts"
    with pytest.raises(dist.DistBackendError, match="aborted"):
        dist.all_reduce(torch.ones(4))


@needs_hooks
def test_abort_hooks_run_once_for_an_abort_whatever_one_of_them_throws():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(told_of_an_abort)


def extend(world):
    """Rank 1 is late by more than the group's timeout, and by less than it and the extension."""
    group = dist.group.WORLD
    dist.all_reduce(torch.ones(4))
    backend = group._get_backend(torch.device("cpu"))
    group.set_timeout(timedelta(seconds=1 * PATIENCE))
    backend._add_ephemeral_timeout(timedelta(seconds=4 * PATIENCE))
    backend._add_ephemeral_timeout(timedelta(seconds=3 * PATIENCE))
    if world.rank == 1:
        time.sleep(3 * PATIENCE)
    dist.all_reduce(torch.ones(4))  # has both, and is the first that is done
    if world.rank == 1:
        time.sleep(4 * PATIENCE)
        return 0.0
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="all_reduce"):
        dist.all_reduce(torch.ones(4))
    return (time.monotonic() - began) / PATIENCE


@needs_hooks
def test_a_temporary_timeout_ends_with_the_first_call_that_has_it():
    with Cluster(2, launcher="plain") as cluster:
        assert cluster.check(extend)[0] < 3
