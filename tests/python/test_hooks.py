"""What torch's own interfaces are told of a group, and what they may change: abort hooks, temporary timeouts."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster
from launching import clean_environment, free_port

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


def wait_within_the_hook(world):
    """For the very call that failed."""
    group, told = register(world)
    group.set_timeout(timedelta(seconds=1 * PATIENCE))
    if world.rank == 1:
        time.sleep(3 * PATIENCE)
        return []
    work = dist.all_reduce(torch.ones(4), async_op=True)

    def waits():
        try:
            work.wait()
        except dist.DistBackendError as error:
            told.append(str(error))

    group.register_abort_hook(8, waits)
    time.sleep(2 * PATIENCE)  # whoever notices it then is no thread of the program's
    with pytest.raises(dist.DistBackendError, match="all_reduce"):
        work.wait()
    return told[1:]


@needs_hooks
def test_a_hook_that_waits_for_the_call_that_failed_is_refused():
    with Cluster(2, launcher="plain") as cluster:
        told = cluster.check(wait_within_the_hook)[0]
        assert len(told) == 1
        assert "cannot wait" in told[0]


ENDS_WITH_A_HOOK = """
import datetime, os, time, torch, torch.distributed as dist
dist.init_process_group("al", timeout=datetime.timedelta(seconds=1))
dist.all_reduce(torch.ones(4))
if os.environ["RANK"] == "1":
    time.sleep(4)
    os._exit(0)
dist.group.WORLD.register_abort_hook(1, lambda: time.sleep(0.001))
work = dist.all_reduce(torch.ones(4), async_op=True)
time.sleep(0.93)  # its deadline comes while the interpreter ends
"""


@needs_hooks
def test_a_call_may_fail_while_the_interpreter_ends():
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", ENDS_WITH_A_HOOK],
            env=clean_environment(
                {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            ),
        )
        for rank in range(2)
    ]
    try:
        assert [rank.wait(60 * PATIENCE) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()


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
